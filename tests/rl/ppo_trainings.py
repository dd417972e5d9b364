"""Small trainings by PPO on random numbers; `ppo_frozen.safetensors` holds their results.

The file was written with the code at commit 7c00f5b, in which PPO was a subclass of rsl_rl's.
"""

import copy
from typing import Any

import torch
from rsl_rl.models import MLPModel
from tensordict import TensorDict

from body_transformer.rl.config import RlConfig
from body_transformer.rl.ppo import PPO
from body_transformer.rl.rollout import RolloutBuffer

NUM_ENVS, NUM_STEPS, OBS, ACTIONS = 12, 8, 5, 3
GROUPS = {"actor": ["policy"], "critic": ["policy", "privileged"]}
AS_RSL_RL: dict[str, Any] = {
    "value_loss_coef": 1.0,
    "entropy_coef": 0.01,
    "min_learning_rate": 1e-5,
    "action_bound_coef": 0.0,
    "normalize_values": False,
    "minibatch_by_env": False,
    "joint_grad_norm": False,
    "num_learning_epochs": 3,
    "num_mini_batches": 4,
    "learning_rate": 3e-3,
    "desired_kl": 0.01,
}
"""The defaults of rsl_rl's PPO, with few epochs and minibatches."""
AS_RL_GAMES: dict[str, Any] = {
    "entropy_coef": 0.0,
    "action_bound": 0.05,
    "action_bound_coef": 0.5,
    "normalize_values": True,
    "minibatch_by_env": True,
    "joint_grad_norm": True,
    "kl_reference": "epoch",
}
PAPER: dict[str, Any] = {
    "value_loss_coef": 2.0,
    "entropy_coef": 0.0,
    "min_learning_rate": 1e-6,
    "action_bound_coef": 1e-4,
    "normalize_values": True,
    "minibatch_by_env": True,
    "joint_grad_norm": True,
    "num_learning_epochs": 5,
    "learning_rate": 5e-4,
    "desired_kl": 0.008,
}
FROZEN: dict[str, dict[str, Any]] = {
    "rsl_rl": {},
    "paper": PAPER,
    "all": AS_RL_GAMES,
    "all_shuffled": AS_RL_GAMES | {"minibatch_by_env": False},
    "kl_rollout": AS_RL_GAMES | {"kl_reference": "rollout"},
    "fixed_schedule": AS_RL_GAMES | {"schedule": "fixed"},
    "unclipped_values": {"use_clipped_value_loss": False, "normalize_values": True, "joint_grad_norm": True},
    "separate_norms": AS_RL_GAMES | {"joint_grad_norm": False, "max_grad_norm": 0.1},
    "joint_norm": {"joint_grad_norm": True, "max_grad_norm": 0.1},
    "advantages_per_minibatch": {"normalize_advantage_per_mini_batch": True, "joint_grad_norm": True},
    "one_minibatch": AS_RL_GAMES | {"num_mini_batches": 1},
    "slow": PAPER | {"desired_kl": 1e-7},
    "fast": PAPER | {"desired_kl": 10.0},
    "paper_normalized": PAPER | {"obs_normalization": True},
    "scalar_std": AS_RL_GAMES | {"std_type": "scalar", "obs_normalization": True},
    "fixed_std": AS_RL_GAMES | {"learn_std": False},
}
"""Name in the file -> settings."""


def observations(generator: torch.Generator) -> TensorDict:
    sizes = {"policy": OBS, "privileged": 2}
    values = {key: torch.randn(NUM_ENVS, size, generator=generator) for key, size in sizes.items()}
    return TensorDict(values, batch_size=[NUM_ENVS])


def models(std_type: str = "log", obs_normalization: bool = False, learn_std: bool = True) -> tuple[MLPModel, MLPModel]:
    torch.manual_seed(0)
    obs = observations(torch.Generator().manual_seed(0))
    gaussian = {"class_name": "rsl_rl.modules.distribution:GaussianDistribution", "init_std": 0.7}
    gaussian |= {"std_type": std_type, "learn_std": learn_std}
    options = {"hidden_dims": (16,), "obs_normalization": obs_normalization}
    actor = MLPModel(obs, GROUPS, "actor", ACTIONS, distribution_cfg=gaussian, **options)
    return actor, MLPModel(obs, GROUPS, "critic", 1, **options)


def config(num_envs: int = NUM_ENVS, **options: Any) -> RlConfig:
    """Settings as in rsl_rl, except for the options."""
    return RlConfig("none", num_envs=num_envs, num_steps_per_env=NUM_STEPS, **AS_RSL_RL | options)


def make_ppo(learn_std: bool = True, **options: Any) -> PPO:
    settings = config(**options)
    obs = observations(torch.Generator().manual_seed(0))
    both = models(settings.std_type, options.get("obs_normalization", False), learn_std)
    return PPO(*copy.deepcopy(both), RolloutBuffer(obs, NUM_STEPS, ACTIONS, "cpu"), settings)


def play(ppo: Any, seed: int = 0) -> None:
    """Collect a rollout with random rewards; some episodes end, some of those by time-out."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    obs = observations(generator)
    with torch.inference_mode():
        for _ in range(NUM_STEPS):
            ppo.act(obs)
            obs = observations(generator)
            rewards = torch.randn(NUM_ENVS, generator=generator)
            dones = torch.rand(NUM_ENVS, generator=generator) < 0.2
            time_outs = dones & (torch.rand(NUM_ENVS, generator=generator) < 0.5)
            if isinstance(ppo, PPO):
                ppo.process_env_step(rewards, dones, time_outs)
            else:  # rsl_rl's own
                ppo.process_env_step(obs, rewards, dones.long(), {"time_outs": time_outs})
        ppo.compute_returns(obs)


def parameters(ppo: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for model in (ppo.actor, ppo.critic) for p in model.parameters()])


def train(name: str) -> dict[str, torch.Tensor]:
    """Train three iterations with the settings of this name; return their statistics and results."""
    ppo = make_ppo(**FROZEN[name])
    stats, rates = [], []
    for iteration in range(3):
        play(ppo, iteration)
        torch.manual_seed(100 + iteration)
        stats.append(list(ppo.update().values()))
        rates.append(float(ppo.learning_rate))
    found = {"parameters": parameters(ppo), "returns": ppo.rollout.returns, "advantages": ppo.rollout.advantages}
    found["stats"] = torch.tensor(stats, dtype=torch.float64)
    found["learning_rate"] = torch.tensor(rates, dtype=torch.float64)
    if ppo.value_scale is not None:
        scale = ppo.value_scale.state_dict().values()
        found["value_scale"] = torch.cat([tensor.double().flatten() for tensor in scale])
    return found
