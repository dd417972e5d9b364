"""BodyModel in the configurations of rsl_rl and mjlab, for training by their own commands.

mjlab's `train`, and rsl_rl's runner on any mjlab environment, need only these entries:

    RslRlOnPolicyRunnerCfg(
        actor=BodyModelCfg(policy={"variant": "bot-mix"}, distribution_cfg={"class_name": "GaussianDistribution"}),
        critic=BodyModelCfg(policy={"variant": "bot-mix"}),
        algorithm=RslRlPpoAlgorithmCfg(class_name="body_transformer.rl.rsl_rl_config:BodyPPO"),
    )
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mjlab.rl import RslRlModelCfg
from rsl_rl.algorithms import PPO
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from ..errors import listing
from ..model.trunk import Precision
from .infer_layout import infer_layout
from .rsl_rl_model import NAME, BodyModel

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnv


@dataclass
class BodyModelCfg(RslRlModelCfg):
    """mjlab's configuration of a BodyModel."""

    class_name: str = NAME
    """Path of the class."""
    policy: dict[str, Any] = field(default_factory=dict)
    """Fields of PolicyConfig that differ from their defaults."""
    precision: Precision = "fp32"
    """Precision of the encoder's matrix products on a GPU."""
    layout_overrides: dict[str, str] = field(default_factory=dict)
    """Term -> the place of its entries, as in `infer_layout.infer_layout`."""


class BodyPPO(PPO):
    """rsl_rl's PPO, unchanged. At construction, models without a layout get the one inferred from the environment."""

    @staticmethod
    def construct_algorithm(obs: TensorDict, env: VecEnv, cfg: dict[str, Any], device: str) -> PPO:
        """Complete the configuration and construct rsl_rl's PPO."""
        say = print if os.environ.get("RANK", "0") == "0" else lambda text: None
        cfg.update(with_layouts(cfg, env.unwrapped, say=say))
        return PPO.construct_algorithm(obs, env, cfg, device)


def with_layouts(
    cfg: Mapping[str, Any], env: ManagerBasedRlEnv, say: Callable[[str], object] = lambda text: None
) -> dict[str, Any]:
    """Return a copy of rsl_rl's configuration in which every BodyModel has its layout, as plain data.

    A model's "layout_overrides" are those of `infer_layout`. `say` is called with the description of each layout.
    """
    out = copy.deepcopy(dict(cfg))
    for model, options in cfg.items():
        if not _is_body_model(options) or options.get("layout"):
            continue
        groups = cfg.get("obs_groups", {}).get(model)
        if groups is None:
            raise ValueError(f"obs_groups has no entry for {model!r}; have: {listing(cfg.get('obs_groups', {}))}")
        found = infer_layout(env, list(groups), options.get("layout_overrides"))
        out[model]["layout"] = found.layout.to_dict()
        say(f"{model}:\n{found.describe()}")
    return out


def _is_body_model(options: Any) -> bool:
    """Return whether a part of rsl_rl's configuration belongs to a BodyModel."""
    name = options.get("class_name") if isinstance(options, Mapping) else None
    return name is BodyModel or (isinstance(name, str) and name.replace(":", ".") == NAME.replace(":", "."))
