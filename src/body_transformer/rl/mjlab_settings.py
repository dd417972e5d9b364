"""How mjlab trains one of its tasks, as our settings. What we cannot follow is refused, not left out.

Two things are no settings, and are as in our tasks: gradients of actor and critic are clipped together, and statistics
of observations move once an iteration (`joint_norm` and `normalize_after` of RecordedPPO).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..errors import unknown
from ..model.config import PolicyConfig
from .config import RlConfig
from .registry import MJLAB, names

TAKEN = {
    "num_learning_epochs": "num_epochs",
    "num_mini_batches": "num_minibatches",
    "gamma": "gamma",
    "lam": "lam",
    "clip_param": "clip",
    "learning_rate": "learning_rate",
    "schedule": "schedule",
    "desired_kl": "desired_kl",
    "value_loss_coef": "value_coef",
    "entropy_coef": "entropy_coef",
    "max_grad_norm": "max_grad_norm",
}
"""mjlab's setting of PPO -> ours."""
GAUSSIAN = {"init_std": 1.0, "std_type": "scalar", "learn_std": True}
"""Of the distribution of actions, and taken, too; these are rsl_rl's defaults."""
ALLOWED: dict[str, tuple[Any, ...]] = {
    "algorithm.class_name": ("PPO", "body_transformer.rl.by_name:BodyPPO"),
    "algorithm.optimizer": ("adam",),
    "algorithm.use_clipped_value_loss": (True,),
    "algorithm.normalize_advantage_per_mini_batch": (False,),
    "algorithm.share_cnn_encoders": (False,),
    "distribution.class_name": ("GaussianDistribution", "rsl_rl.modules.distribution:GaussianDistribution"),
}
"""The values that we have of the other settings of PPO and of the distribution; None of any that is not here."""


def mjlab_settings(name: str, variant: str = "bot-mix") -> tuple[PolicyConfig, RlConfig]:
    """For `mjlab:NAME`. The architecture is ours; `clip_actions` is the environment's, see `registry.make_env`."""
    if name not in names():
        raise ValueError(unknown("task", name, names()))
    from mjlab.tasks.registry import load_env_cfg, load_rl_cfg

    task = name.removeprefix(MJLAB)
    theirs: Any = load_rl_cfg(task)
    _check_groups(name, theirs.obs_groups, load_env_cfg(task).observations)
    _check_values(name, theirs)
    std = GAUSSIAN | theirs.actor.distribution_cfg
    policy = PolicyConfig(
        variant=variant,
        head="gaussian",
        std="learned" if std["learn_std"] else "fixed",
        init_std=std["init_std"],
        init="normal",
    )
    config = RlConfig(
        task=name,
        random_initial_step=True,
        num_steps=theirs.num_steps_per_env,
        num_iterations=theirs.max_iterations,
        blocks=False,
        min_learning_rate=1e-5,
        bound_coef=0.0,
        reward_scale=1.0,
        normalize_obs=theirs.actor.obs_normalization,
        normalize_values=False,
        std_type=std["std_type"],
        **{ours: getattr(theirs.algorithm, key) for key, ours in TAKEN.items()},
    )
    return policy, config


def _check_groups(name: str, obs_groups: Mapping[str, Sequence[str]], have: Mapping[str, Any]) -> None:
    """Who learned without some of the groups, of images say, would learn another task."""
    for kind in ("actor", "critic"):
        groups = list(obs_groups.get(kind, [kind]))
        ours = kind if kind in have else "actor"
        if groups != [ours]:
            raise ValueError(
                f"{name}: its {kind} observes {', '.join(groups)}; bot train knows {ours} alone, and no images"
            )


def _check_values(name: str, theirs: Any) -> None:
    algorithm, distribution = asdict(theirs.algorithm), theirs.actor.distribution_cfg or {"class_name": None}
    rest = {f"algorithm.{key}": value for key, value in algorithm.items() if key not in TAKEN}
    rest |= {f"distribution.{key}": value for key, value in distribution.items() if key not in GAUSSIAN}
    rest["critic.obs_normalization"] = theirs.critic.obs_normalization
    allowed = ALLOWED | {"critic.obs_normalization": (theirs.actor.obs_normalization,)}
    for key, value in rest.items():
        ours = allowed.get(key, (None,))
        if value not in ours:
            raise ValueError(f"{name}: mjlab trains it with {key} = {value!r}; bot train knows {ours[0]!r} alone")
