"""Our tasks in mjlab's registry. mjlab imports this module by its entry point group `mjlab.tasks`; nobody else does.

`train humanoid-mod`, mjlab's own command, then trains rsl_rl's MLP with what rsl_rl has of the paper's settings.
"""

from mjlab.rl import RslRlModelCfg, RslRlOnPolicyRunnerCfg, RslRlPpoAlgorithmCfg
from mjlab.tasks.registry import list_tasks, register_mjlab_task

from ..experiment import load_experiment
from .config import RlConfig
from .registry import TASKS, make_env_cfg

HIDDEN = (400, 200, 100)
"""Of rsl_rl's MLP: as in Isaac Lab's own configuration of a humanoid for rsl_rl. The paper's MLP has tokens."""


def experiment(name: str) -> RlConfig:
    """How a task of ours is trained."""
    found = load_experiment(name).rl
    assert found is not None
    return found


def runner_cfg(name: str, groups: dict[str, tuple[str, ...]]) -> RslRlOnPolicyRunnerCfg:
    """PPO as the authors run it, as far as rsl_rl has it; `groups` are the observations of actor and critic."""
    config = experiment(name)
    gaussian = {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": config.std_type}
    return RslRlOnPolicyRunnerCfg(
        experiment_name=name,
        num_steps_per_env=config.num_steps,
        max_iterations=config.num_iterations,
        obs_groups=groups,
        logger="tensorboard",
        actor=RslRlModelCfg(hidden_dims=HIDDEN, obs_normalization=config.normalize_obs, distribution_cfg=gaussian),
        critic=RslRlModelCfg(hidden_dims=HIDDEN, obs_normalization=config.normalize_obs),
        algorithm=RslRlPpoAlgorithmCfg(
            num_learning_epochs=config.num_epochs,
            num_mini_batches=config.num_minibatches,
            learning_rate=config.learning_rate,
            desired_kl=config.desired_kl,
            gamma=config.gamma,
            lam=config.lam,
            entropy_coef=config.entropy_coef,
            value_loss_coef=config.value_coef,
        ),
    )


def register() -> None:
    """Puts our tasks into mjlab's registry, once."""
    for name in TASKS:
        if name in list_tasks():
            continue
        config = experiment(name)
        training, playing = make_env_cfg(name, config.num_envs, seed=0), make_env_cfg(name, 16, seed=0)
        for term in (*training.rewards.values(), *playing.rewards.values()):
            term.weight *= config.reward_scale  # rsl_rl has no such setting
        groups: dict[str, tuple[str, ...]] = {"actor": ("actor",), "critic": ("actor",)}
        if "critic" in training.observations:
            groups["critic"] = ("critic",)
        register_mjlab_task(name, training, playing, runner_cfg(name, groups))


register()
