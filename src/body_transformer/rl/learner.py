"""Learner: actor, critic and PPO for an environment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from mjlab.envs import ManagerBasedRlEnv
from tensordict import TensorDict

from ..body.owners import InferredLayout
from ..model.config import PolicyConfig
from ..model.policy import Policy
from .config import RlConfig
from .infer_layout import infer_layout
from .ppo import PPO
from .rollout import RolloutBuffer
from .rsl_rl_model import BodyModel

SETS = ("actor", "critic")


def obs_groups(env: ManagerBasedRlEnv) -> dict[str, list[str]]:
    """Return the observation groups of actor and critic; a critic without a group of its own has the actor's."""
    have = env.observation_manager.active_terms
    return {name: [name if name in have else "actor"] for name in SETS}


def model_layouts(env: ManagerBasedRlEnv, overrides: Mapping[str, str]) -> dict[str, InferredLayout]:
    """Infer the layouts of actor and critic."""
    return {name: infer_layout(env, groups, overrides) for name, groups in obs_groups(env).items()}


class Learner:
    """The actor and the critic of an environment, and the PPO that trains them."""

    def __init__(
        self, env: ManagerBasedRlEnv, obs: TensorDict, policy: PolicyConfig, config: RlConfig, num_processes: int = 1
    ) -> None:
        """
        Args:
            env: the environment, for its layouts and its device.
            obs: its observations, for their shapes.
            policy: the architecture of both models.
            config: the settings of the training.
            num_processes: processes that train one policy together.
        """
        self.config, self.groups, self._init_std = config, obs_groups(env), policy.init_std
        self.layouts = model_layouts(env, config.layout_overrides)
        num_actions, device = env.action_manager.total_action_dim, str(env.device)
        self.actor, self.critic = (
            BodyModel(
                obs,
                self.groups,
                name,
                num_actions if name == "actor" else 1,
                layout=self.layouts[name].layout,
                policy=policy,
                obs_normalization=config.obs_normalization,
                distribution_cfg=_gaussian(policy, config) if name == "actor" else None,
                precision=_precision(config, device),
            ).to(device)
            for name in SETS
        )
        rollout = RolloutBuffer(obs, config.num_steps_per_env, num_actions, device)
        self.ppo = PPO(self.actor, self.critic, rollout, config, num_processes)

    def describe(self) -> str:
        """Return the allocation of the observation to body parts; that of the critic too if it differs."""
        actor, critic = (self.layouts[name].describe() for name in SETS)
        return actor if critic == actor else f"actor:\n{actor}\ncritic:\n{critic}"

    def policy(self) -> Policy:
        """Return a copy of the actor as a policy."""
        policy: Policy = self.actor.policy()
        return policy

    @property
    def num_parameters(self) -> int:
        """Number of learned parameters of actor and critic together, as the paper counts."""
        return sum(parameter.numel() for model in (self.actor, self.critic) for parameter in model.parameters())

    def std(self) -> float:
        """Return the mean standard deviation of the actions in the last rollout."""
        params = self.ppo.rollout.distribution_params
        return float(params[1].mean()) if params else math.nan

    @torch.no_grad()
    def limit_std(self, iteration: int) -> None:
        """Lower the actions' standard deviation to the bound of this iteration."""
        final = self.config.final_std
        if final is None:
            return
        bound = self._init_std * (final / self._init_std) ** min(iteration / self.config.std_iterations, 1.0)
        gaussian: Any = self.actor.distribution
        if self.config.std_type == "scalar":
            gaussian.std_param.clamp_(max=bound)
        else:
            gaussian.log_std_param.clamp_(max=math.log(bound))


def _gaussian(policy: PolicyConfig, config: RlConfig) -> dict[str, Any]:
    """Return rsl_rl's configuration of the action distribution."""
    return {
        "class_name": "rsl_rl.modules.distribution:GaussianDistribution",
        "init_std": policy.init_std,
        "std_type": config.std_type,
        "learn_std": policy.std == "learned",
    }


def _precision(config: RlConfig, device: str) -> Any:
    if config.precision != "auto":
        return config.precision
    return "bf16" if torch.device(device).type == "cuda" else "fp32"
