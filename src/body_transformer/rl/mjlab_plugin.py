"""Our tasks in mjlab's registry. mjlab imports this module by its entry point group `mjlab.tasks`; nobody else does.

`train humanoid-mod`, mjlab's own command, then trains an MLP by rsl_rl with the paper's settings.
"""

from mjlab.rl import RslRlModelCfg, RslRlOnPolicyRunnerCfg, RslRlPpoAlgorithmCfg
from mjlab.tasks.registry import list_tasks, register_mjlab_task

from .humanoid.task import GROUP
from .registry import TASKS, make_env_cfg

REWARD_SCALE = 0.01
"""Of the paper's PPO; rsl_rl has no such setting, so it goes into the weights."""
NUM_ENVS = 2048


def runner_cfg(name: str) -> RslRlOnPolicyRunnerCfg:
    """PPO as the authors run it, as far as rsl_rl has it: 2048 robots x 32 steps, 8 minibatches, 5 epochs."""
    gaussian = {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "log"}
    hidden = (400, 200, 100)
    return RslRlOnPolicyRunnerCfg(
        experiment_name=name,
        num_steps_per_env=32,
        max_iterations=10_000,
        obs_groups={"actor": (GROUP,), "critic": (GROUP,)},
        logger="tensorboard",
        actor=RslRlModelCfg(hidden_dims=hidden, obs_normalization=True, distribution_cfg=gaussian),
        critic=RslRlModelCfg(hidden_dims=hidden, obs_normalization=True),
        algorithm=RslRlPpoAlgorithmCfg(
            num_learning_epochs=5,
            num_mini_batches=8,
            learning_rate=5e-4,
            desired_kl=0.008,
            gamma=0.99,
            lam=0.95,
            entropy_coef=0.0,
            value_loss_coef=2.0,
        ),
    )


def register() -> None:
    """Puts our tasks into mjlab's registry, once."""
    for name in TASKS:
        if name in list_tasks():
            continue
        training, playing = make_env_cfg(name, NUM_ENVS, seed=0), make_env_cfg(name, 16, seed=0)
        for term in (*training.rewards.values(), *playing.rewards.values()):
            term.weight *= REWARD_SCALE
        register_mjlab_task(name, training, playing, runner_cfg(name))


register()
