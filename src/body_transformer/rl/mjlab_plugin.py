"""Register our tasks with mjlab, which imports this module through its entry point group `mjlab.tasks`.

mjlab's own command, `train humanoid-mod`, then trains rsl_rl's MLP with the paper's settings that rsl_rl has.
"""

from dataclasses import fields

from mjlab.rl import RslRlModelCfg, RslRlOnPolicyRunnerCfg, RslRlPpoAlgorithmCfg
from mjlab.tasks.registry import list_tasks, register_mjlab_task

from ..experiment import load_experiment
from .config import RlConfig
from .registry import NEED_DATA, TASKS, make_env_cfg

HIDDEN = (400, 200, 100)
"""Hidden layers of rsl_rl's MLP, as in Isaac Lab's configuration of a humanoid; the paper's MLP has tokens."""


def runner_cfg(config: RlConfig, groups: dict[str, tuple[str, ...]]) -> RslRlOnPolicyRunnerCfg:
    """Return mjlab's configuration of a training; `groups` are the observation groups of actor and critic."""
    gaussian = {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": config.std_type}
    shared = {item.name for item in fields(RslRlPpoAlgorithmCfg)} & {item.name for item in fields(RlConfig)}
    return RslRlOnPolicyRunnerCfg(
        experiment_name=config.task,
        num_steps_per_env=config.num_steps_per_env,
        max_iterations=config.max_iterations,
        obs_groups=groups,
        logger="tensorboard",
        actor=RslRlModelCfg(hidden_dims=HIDDEN, obs_normalization=config.obs_normalization, distribution_cfg=gaussian),
        critic=RslRlModelCfg(hidden_dims=HIDDEN, obs_normalization=config.obs_normalization),
        algorithm=RslRlPpoAlgorithmCfg(**{name: getattr(config, name) for name in shared}),
    )


def register() -> None:
    """Add our tasks to mjlab's registry once. Tasks in NEED_DATA are left out: mjlab's commands have no such option."""
    for name in TASKS:
        if name in list_tasks() or name in NEED_DATA:
            continue
        config = load_experiment(name).rl
        assert config is not None
        training, playing = make_env_cfg(name, config.num_envs, seed=0), make_env_cfg(name, 16, seed=0)
        for term in (*training.rewards.values(), *playing.rewards.values()):
            term.weight *= config.reward_scale  # rsl_rl has no such setting
        critic = "critic" if "critic" in training.observations else "actor"
        register_mjlab_task(name, training, playing, runner_cfg(config, {"actor": ("actor",), "critic": (critic,)}))


register()
