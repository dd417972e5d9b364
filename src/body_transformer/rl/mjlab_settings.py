"""Settings for training on mjlab's own tasks, taken from mjlab. A setting that RlConfig lacks is refused.

Training differs from mjlab's in two points. Gradients of actor and critic are clipped together, and the statistics of
observations are updated once per iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from ..errors import unknown
from ..model.config import PolicyConfig
from ..model.variants import variant_name
from .config import RlConfig
from .registry import MJLAB, names

SETTINGS = {item.name for item in fields(RlConfig)}
"""Fields of RlConfig. Those that mjlab's PPO also has are taken from mjlab."""
GAUSSIAN = {"init_std": 1.0, "std_type": "scalar", "learn_std": True}
"""Settings of the action distribution that are also taken, with rsl_rl's defaults."""
ALLOWED: dict[str, tuple[Any, ...]] = {
    "algorithm.class_name": ("PPO", "body_transformer.rl.rsl_rl_config:BodyPPO"),
    "algorithm.optimizer": ("adam",),
    "algorithm.share_cnn_encoders": (False,),
    "distribution.class_name": ("GaussianDistribution", "rsl_rl.modules.distribution:GaussianDistribution"),
}
"""Allowed values of the other settings of PPO and of the distribution; settings not listed must be None."""


def mjlab_settings(name: str, variant: str = "bot-mix") -> tuple[PolicyConfig, RlConfig]:
    """Return architecture and settings for `mjlab:NAME`; `registry.make_env` applies mjlab's `clip_actions`."""
    if name not in names():
        raise ValueError(unknown("task", name, names()))
    from mjlab.tasks.registry import load_env_cfg, load_rl_cfg

    task = name.removeprefix(MJLAB)
    cfg: Any = load_rl_cfg(task)
    _check_groups(name, cfg.obs_groups, load_env_cfg(task).observations)
    _check_values(name, cfg)
    std = GAUSSIAN | cfg.actor.distribution_cfg
    policy = PolicyConfig(
        variant=variant_name(variant),
        head="gaussian",
        std="learned" if std["learn_std"] else "fixed",
        init_std=std["init_std"],
        init="normal",
    )
    config = RlConfig(
        task=name,
        random_initial_step=True,
        num_steps_per_env=cfg.num_steps_per_env,
        max_iterations=cfg.max_iterations,
        minibatch_by_env=False,
        min_learning_rate=1e-5,
        joint_grad_norm=False,
        action_bound_coef=0.0,
        reward_scale=1.0,
        obs_normalization=cfg.actor.obs_normalization,
        normalize_values=False,
        std_type=std["std_type"],
        **{key: value for key, value in asdict(cfg.algorithm).items() if key in SETTINGS},
    )
    return policy, config


def _check_groups(name: str, obs_groups: Mapping[str, Sequence[str]], have: Mapping[str, Any]) -> None:
    """Refuse tasks whose actor or critic observes other groups, such as images; the task needs them."""
    for kind in ("actor", "critic"):
        groups = list(obs_groups.get(kind, [kind]))
        ours = kind if kind in have else "actor"
        if groups != [ours]:
            observed = f"its {kind} observes {', '.join(groups)}"
            raise ValueError(f"{name}: {observed}; bot train supports only {ours}, and no images")


def _check_values(name: str, cfg: Any) -> None:
    algorithm, distribution = asdict(cfg.algorithm), cfg.actor.distribution_cfg or {"class_name": None}
    rest = {f"algorithm.{key}": value for key, value in algorithm.items() if key not in SETTINGS}
    rest |= {f"distribution.{key}": value for key, value in distribution.items() if key not in GAUSSIAN}
    rest["critic.obs_normalization"] = cfg.critic.obs_normalization
    allowed = ALLOWED | {"critic.obs_normalization": (cfg.actor.obs_normalization,)}
    for key, value in rest.items():
        ours = allowed.get(key, (None,))
        if value not in ours:
            raise ValueError(f"{name}: mjlab trains it with {key} = {value!r}; bot train supports only {ours[0]!r}")
