"""Learner: actor, critic and PPO for an environment, and what a checkpoint keeps of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from mjlab.envs import ManagerBasedRlEnv
from rsl_rl.storage import RolloutStorage
from tensordict import TensorDict
from torch import Tensor, nn

from ..model.config import PolicyConfig
from ..model.policy import Policy
from .config import RlConfig
from .infer_layout import InferredLayout, infer_layout
from .model import BodyModel
from .ppo import RecordedPPO

SETS = ("actor", "critic")
FEW = 4
"""So many differences are named."""


def obs_groups(env: ManagerBasedRlEnv) -> dict[str, list[str]]:
    """What each model observes: a critic without observations of its own sees the actor's."""
    have = env.observation_manager.active_terms
    return {name: [name if name in have else "actor"] for name in SETS}


def model_layouts(env: ManagerBasedRlEnv, overrides: Mapping[str, str]) -> dict[str, InferredLayout]:
    """Which node owns what of that, for each model."""
    return {name: infer_layout(env, groups, overrides) for name, groups in obs_groups(env).items()}


class Learner:
    """Acts, and learns from what came of it."""

    def __init__(
        self,
        env: ManagerBasedRlEnv,
        obs: TensorDict,
        policy: PolicyConfig,
        config: RlConfig,
        multi_gpu: dict[str, int] | None = None,
    ) -> None:
        self.config, self.groups, self._first_std = config, obs_groups(env), policy.init_std
        self.layouts = model_layouts(env, config.layout_overrides)
        num_actions = env.action_manager.total_action_dim
        device = str(env.device)
        self.actor, self.critic = (
            BodyModel(
                obs,
                self.groups,
                name,
                num_actions if name == "actor" else 1,
                layout=self.layouts[name].layout,
                policy=policy,
                obs_normalization=config.normalize_obs,
                distribution_cfg=_gaussian(policy, config) if name == "actor" else None,
                precision=_precision(config, device),
            ).to(device)
            for name in SETS
        )
        storage = RolloutStorage("rl", env.num_envs, config.num_steps, obs, [num_actions], device)
        self.ppo = RecordedPPO(
            self.actor,
            self.critic,
            storage,
            num_learning_epochs=config.num_epochs,
            num_mini_batches=config.num_minibatches,
            clip_param=config.clip,
            gamma=config.gamma,
            lam=config.lam,
            value_loss_coef=config.value_coef,
            entropy_coef=config.entropy_coef,
            learning_rate=config.learning_rate,
            learning_rate_bounds=(config.min_learning_rate, config.max_learning_rate),
            max_grad_norm=config.max_grad_norm,
            schedule=config.schedule,
            desired_kl=config.desired_kl,
            divergence_from=config.divergence_from,
            bound_coef=config.bound_coef,
            normalize_values=config.normalize_values,
            normalize_after=True,
            joint_norm=True,
            blocks=config.blocks,
            device=device,
            multi_gpu_cfg=multi_gpu,
        )

    def describe(self) -> str:
        """Which entry of the observation went to which body part; of the critic, too, where that is something else."""
        actor, critic = (self.layouts[name].describe() for name in SETS)
        return actor if critic == actor else f"actor:\n{actor}\ncritic:\n{critic}"

    def policy(self) -> Policy:
        return self.actor.policy()

    def std(self) -> float:
        """Of the actions of the last rollout, averaged."""
        params = self.ppo.storage.distribution_params
        return float(params[1].mean()) if params is not None else math.nan

    @torch.no_grad()
    def limit_std(self, iteration: int) -> None:
        """Of the actions, to what the settings allow after so many iterations."""
        final = self.config.final_std
        if final is None:
            return
        most = self._first_std * (final / self._first_std) ** min(iteration / self.config.std_iterations, 1.0)
        gaussian: Any = self.actor.distribution
        if self.config.std_type == "scalar":
            gaussian.std_param.clamp_(max=most)
        else:
            gaussian.log_std_param.clamp_(max=math.log(most))

    # -- what a checkpoint keeps ---------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Both models with their statistics, the optimizer, the value's scale."""
        parts: dict[str, nn.Module] = {"actor": self.actor, "critic": self.critic}
        if self.ppo.value_scale is not None:
            parts["value_scale"] = self.ppo.value_scale
        found = {
            f"{part}.{name}": value for part, module in parts.items() for name, value in module.state_dict().items()
        }
        for index, state in self.ppo.optimizer.state_dict()["state"].items():
            found |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
        return found | {"learning_rate": self.ppo._rate}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        for part, module in (("actor", self.actor), ("critic", self.critic), ("value_scale", self.ppo.value_scale)):
            if module is None:
                continue
            saved = _under(f"{part}.", tensors)
            different = _differences(saved, module.state_dict())
            if different:  # another architecture, or a critic that observes something else
                raise ValueError(f"the checkpoint's {part} does not fit this run: {different}")
            module.load_state_dict(saved)
        optimizer = self.ppo.optimizer.state_dict()
        optimizer["state"] = {
            index: _under(f"optimizer.{index}.", tensors)
            for index in range(len(optimizer["param_groups"][0]["params"]))
        }
        self.ppo.optimizer.load_state_dict(optimizer)
        self.ppo.use_rate(float(tensors["learning_rate"]))


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    if not found:
        raise ValueError(f"the checkpoint's training state lacks {prefix}*")
    return found


def _differences(saved: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> str:
    """Of a checkpoint's tensors and those of this run: a few, and how many there are; empty if there are none."""
    found = [f"only the checkpoint has {name!r}" for name in saved if name not in own]
    found += [f"only this run has {name!r}" for name in own if name not in saved]
    found += [
        f"{name!r} is {list(tensor.shape)} in the checkpoint and {list(own[name].shape)} in this run"
        for name, tensor in saved.items()
        if name in own and tensor.shape != own[name].shape
    ]
    more = f"; {len(found) - FEW} more such differences" if len(found) > FEW else ""
    return "; ".join(found[:FEW]) + more


def _gaussian(policy: PolicyConfig, config: RlConfig) -> dict[str, Any]:
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
