"""Rollouts of a controller in the tracking task, in MoCapAct's file layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.signal import lfilter

from ....model.normalizer import RunningStatistics
from .environment import Floats, MocapEnv
from .snippets import Snippet

DISCOUNT = 0.95
GAE_LAMBDA = 0.95
"""Both values are from the training of MoCapAct's experts; `values` and `advantages` use them."""
VALUES_NOTE = (
    "values: at each frame, the mean discounted return-to-go (0.95) of the snippet's rollouts that pass it; there is "
    "no learned critic. advantages: GAE(0.95) with these."
)

Controller = Callable[[], npt.NDArray[np.float64]]
"""The mean action [56] in the environment's current state."""


@dataclass(frozen=True)
class MocapRollout:
    """One rollout on a snippet."""

    start_step: int
    """Frame of the clip at which it starts."""
    obs: Floats
    """[T+1, 2868]"""
    actions: Floats
    """[T, 56] executed actions, drawn around the mean"""
    mean_actions: Floats
    """[T, 56]"""
    rewards: Floats
    """[T]"""
    failed: bool
    """Whether it ended before the snippet did."""
    max_steps: int
    """Steps from its start to the snippet's end."""

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in (self.obs, self.actions, self.mean_actions, self.rewards))


def record(
    env: MocapEnv,
    controller: Controller,
    snippet: Snippet,
    start_step: int,
    noise_std: float,
    rng: np.random.Generator,
) -> MocapRollout:
    """Roll the controller out once, with noise of this standard deviation on its actions, clipped to [-1, 1]."""
    first, info = env.reset(options={"snippet": snippet, "start_step": start_step})
    observations, means, actions, rewards = [first], [], [], []
    terminated = truncated = False
    while not (terminated or truncated):
        means.append(np.clip(controller(), -1.0, 1.0))
        noise = noise_std * rng.standard_normal(env.action_dim)
        actions.append(np.clip(means[-1] + noise, -1.0, 1.0).astype(np.float32))
        after, gained, terminated, truncated, _ = env.step(actions[-1])
        observations.append(after)
        rewards.append(gained)
    obs, executed, mean, reward = (
        np.array(steps, dtype=np.float32) for steps in (observations, actions, means, rewards)
    )
    return MocapRollout(start_step, obs, executed, mean, reward, terminated, info["max_steps"])


def values_and_advantages(rollouts: Sequence[MocapRollout]) -> tuple[list[Floats], list[Floats]]:
    """Return values and advantages, [T] per rollout of one snippet; VALUES_NOTE defines them."""
    returns = [_discounted_sums(rollout.rewards, DISCOUNT) for rollout in rollouts]
    by_frame: dict[int, list[float]] = {}
    for rollout, to_go in zip(rollouts, returns, strict=True):
        for frame, one in enumerate(to_go.tolist(), rollout.start_step):
            by_frame.setdefault(frame, []).append(one)
    values, advantages = [], []
    for rollout in rollouts:
        value = np.array([np.mean(by_frame[rollout.start_step + step]) for step in range(len(rollout.rewards))])
        delta = rollout.rewards + DISCOUNT * np.append(value[1:], 0.0) - value
        values.append(value.astype(np.float32))
        advantages.append(_discounted_sums(delta, DISCOUNT * GAE_LAMBDA).astype(np.float32))
    return values, advantages


def _discounted_sums(values: npt.NDArray[Any], rate: float) -> npt.NDArray[np.float64]:
    """Return the sum of each value and all later ones, discounted by the factor `rate` per step."""
    sums: npt.NDArray[np.float64] = lfilter([1.0], [1.0, -rate], values[::-1].astype(np.float64))[::-1]
    return sums


def write_snippet(group: Any, rollouts: Sequence[MocapRollout], num_start: int) -> None:
    """Write the rollouts of a snippet and their metrics; the first `num_start` begin at the snippet's start."""
    for index, (rollout, value, advantage) in enumerate(zip(rollouts, *values_and_advantages(rollouts), strict=True)):
        group[f"{index}/observations/proprioceptive"] = rollout.obs
        group[f"{index}/actions"] = rollout.actions
        group[f"{index}/mean_actions"] = rollout.mean_actions
        group[f"{index}/rewards"] = rollout.rewards
        group[f"{index}/values"] = value
        group[f"{index}/advantages"] = advantage
    group["early_termination"] = np.array([rollout.failed for rollout in rollouts])
    for name, part in (("start_metrics", rollouts[:num_start]), ("rsi_metrics", rollouts[num_start:])):
        returns = np.array([rollout.rewards.sum() for rollout in part], dtype=np.float32)
        lengths = np.array([len(rollout.rewards) for rollout in part], dtype=np.int64)
        longest = np.array([rollout.max_steps for rollout in part], dtype=np.float64)
        group[f"{name}/episode_returns"] = returns
        group[f"{name}/episode_lengths"] = lengths
        group[f"{name}/norm_episode_returns"] = returns / longest
        group[f"{name}/norm_episode_lengths"] = lengths / longest


class FileStatistics:
    """Means and variances over all rollouts of a file."""

    def __init__(self, obs_dim: int, action_dim: int) -> None:
        sizes = {"proprio": obs_dim, "act": action_dim, "mean_act": action_dim}
        self._statistics = {name: RunningStatistics(size) for name, size in sizes.items()}

    def add(self, rollout: MocapRollout) -> None:
        arrays = (rollout.obs, rollout.actions, rollout.mean_actions)
        for statistics, array in zip(self._statistics.values(), arrays, strict=True):
            statistics.update(torch.from_numpy(array))

    def write(self, group: Any) -> None:
        group["count"] = np.int64(self._statistics["proprio"].count)
        for name, statistics in self._statistics.items():
            group[f"{name}_mean"] = statistics.mean.float().numpy()
            group[f"{name}_var"] = statistics.var.float().numpy()
