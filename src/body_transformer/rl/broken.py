"""Environments with values that are not finite: who they are, whose doing that is, and what is kept of them."""

from __future__ import annotations

from pathlib import Path

import torch
from mjlab.envs import ManagerBasedRlEnv
from rsl_rl.storage import RolloutStorage
from safetensors.torch import save_file
from tensordict import TensorDict
from torch import Tensor

from ..files import atomic_write


def broken_envs(env: ManagerBasedRlEnv, stored: RolloutStorage, obs: TensorDict) -> Tensor:
    """Which of them, by what a rollout has stored and what they see after it. Waits for the device.

    What the last step of a rollout led to is stored only by the next one, and mjlab makes a zero of a reward that is no
    number.
    """
    columns = [*stored.observations.values(), stored.rewards, *(column[None] for column in obs.values())]
    whole = torch.stack([torch.isfinite(column).flatten(2).all(-1).all(0) for column in columns]).all(0)  # [envs]
    lost: Tensor | None = getattr(env, "lost", None)  # began anew before anything was stored
    if lost is not None:
        whole &= ~lost
    return (~whole).nonzero().flatten()


def unlearnable_envs(stored: RolloutStorage) -> Tensor:
    """Whose steps have a value, a return or a probability that is not finite; all, if nobody's have: weights broke."""
    columns = (stored.values, stored.returns, stored.actions_log_prob)
    whole = torch.stack([torch.isfinite(column).flatten(2).all(-1).all(0) for column in columns]).all(0)  # [envs]
    return (whole.all() | ~whole).nonzero().flatten()


def is_policys_doing(stored: RolloutStorage, ids: Tensor) -> bool:
    """Whether one of them was told to do something that is no number while all that it saw was: weights are broken."""
    acted = torch.isfinite(stored.actions[:, ids]).all(-1)  # [T, ids]
    groups = [torch.isfinite(column[:, ids]).flatten(2).all(-1) for column in stored.observations.values()]
    return bool((torch.stack(groups).all(0) & ~acted).any())


def save_broken(file: Path, env: ManagerBasedRlEnv, stored: RolloutStorage, ids: Tensor) -> None:
    """What they saw and did in the rollout, [T, ids, …], and the simulator's state of each, [ids, …]."""
    rollout = {f"obs.{name}": column[:, ids] for name, column in stored.observations.items()}
    rollout["actions"] = stored.actions[:, ids]
    now = {name: getattr(env.sim.data, name) for name in ("qpos", "qvel")}
    states = {name: state[ids] for name, state in getattr(env, "left", now).items()}  # left: before they began anew
    tensors = {name: value.contiguous() for name, value in {**rollout, **states, "env_ids": ids}.items()}
    atomic_write(file, lambda path: save_file(tensors, str(path)))
