"""A BodyModel in other people's training commands, by configuration alone: names, no code.

mjlab's `train`, and whoever runs rsl_rl's runner on an mjlab environment, needs two entries for it:

    RslRlOnPolicyRunnerCfg(
        actor=BodyModelCfg(policy={"variant": "bot-mix"}, distribution_cfg={"class_name": "GaussianDistribution"}),
        critic=BodyModelCfg(policy={"variant": "bot-mix"}),
        algorithm=RslRlPpoAlgorithmCfg(class_name="body_transformer.rl.by_name:BodyPPO"),
    )
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from mjlab.rl import RslRlModelCfg
from rsl_rl.algorithms import PPO
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from ..model.trunk import Precision
from .model import NAME, infer_layouts

MEANINGLESS = (
    "hidden_dims",
    "activation",
    "cnn_cfg",
    "rnn_type",
    "rnn_hidden_dim",
    "rnn_num_layers",
    "layout_overrides",
)
"""What a configuration has for others: for mjlab's own models, and for the inference of a layout."""


@dataclass
class BodyModelCfg(RslRlModelCfg):
    """mjlab's configuration of a model, for a BodyModel."""

    class_name: str = NAME
    """The model's class."""
    policy: dict[str, Any] = field(default_factory=dict)
    """The fields of PolicyConfig that differ from its defaults."""
    precision: Precision = "fp32"
    """Of the encoder's products on a GPU."""
    layout_overrides: dict[str, str] = field(default_factory=dict)
    """Term -> where it goes, as in `infer_layout.infer_layout`."""


class BodyPPO(PPO):
    """rsl_rl's PPO. The environment is at hand when it is built, so models that lack a layout get theirs here."""

    @staticmethod
    def construct_algorithm(obs: TensorDict, env: VecEnv, cfg: dict[str, Any], device: str) -> PPO:
        for model, found in infer_layouts(cfg, env.unwrapped).items():
            kept = {key: value for key, value in cfg[model].items() if key not in MEANINGLESS}
            cfg[model] = kept | {"layout": found.layout.to_dict()}
            if os.environ.get("RANK", "0") == "0":
                print(f"{model}:\n{found.describe()}")
        return PPO.construct_algorithm(obs, env, cfg, device)
