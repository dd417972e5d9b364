"""Rollouts of a controller in the tracking task, in MoCapAct's file layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ....model.normalizer import RunningStatistics
from .environment import Floats, MocapEnv
from .snippets import MIN_STEPS, REF_STEPS, Snippet

DISCOUNT = 0.95
GAE_LAMBDA = 0.95
"""Both as in the training of MoCapAct's experts; `values` and `advantages` use them."""
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


def record(
    env: MocapEnv,
    controller: Controller,
    snippet: Snippet,
    start_step: int,
    noise_std: float,
    rng: np.random.Generator,
) -> MocapRollout:
    """Roll the controller out once; actions are drawn with this standard deviation and clipped to [-1, 1]."""
    first, info = env.reset(options={"snippet": snippet, "start_step": start_step})
    observations, means, actions, rewards = [first], [], [], []
    terminated = truncated = False
    while not (terminated or truncated):
        mean = np.clip(controller(), -1.0, 1.0)
        action = np.clip(mean + noise_std * rng.standard_normal(len(mean)), -1.0, 1.0).astype(np.float32)
        obs, reward, terminated, truncated, _ = env.step(action)
        means.append(mean)
        actions.append(action)
        rewards.append(reward)
        observations.append(obs)
    return MocapRollout(
        start_step,
        np.stack(observations),
        np.stack(actions),
        np.stack(means).astype(np.float32),
        np.array(rewards, dtype=np.float32),
        terminated,
        info["max_steps"],
    )


def random_start(snippet: Snippet, rng: np.random.Generator) -> int:
    """Draw a frame with more than MIN_STEPS steps left, as dm_control does."""
    return int(rng.integers(snippet.start, snippet.end - REF_STEPS[-1] - MIN_STEPS))


def values_and_advantages(rollouts: Sequence[MocapRollout]) -> tuple[list[Floats], list[Floats]]:
    """Return values and advantages, [T] per rollout of one snippet; VALUES_NOTE defines them."""
    returns = []
    for rollout in rollouts:
        to_go = np.zeros(len(rollout.rewards) + 1)
        for step in reversed(range(len(rollout.rewards))):
            to_go[step] = rollout.rewards[step] + DISCOUNT * to_go[step + 1]
        returns.append(to_go[:-1])
    sums: dict[int, list[float]] = {}
    for rollout, to_go in zip(rollouts, returns, strict=True):
        for step, one in enumerate(to_go):
            sums.setdefault(rollout.start_step + step, []).append(float(one))
    values, advantages = [], []
    for rollout in rollouts:
        value = np.array([np.mean(sums[rollout.start_step + step]) for step in range(len(rollout.rewards))])
        delta = rollout.rewards + DISCOUNT * np.append(value[1:], 0.0) - value
        advantage = np.zeros(len(value) + 1)
        for step in reversed(range(len(value))):
            advantage[step] = delta[step] + DISCOUNT * GAE_LAMBDA * advantage[step + 1]
        values.append(value.astype(np.float32))
        advantages.append(advantage[:-1].astype(np.float32))
    return values, advantages


def write_snippet(group: Any, rollouts: Sequence[MocapRollout], num_start: int) -> None:
    """Write one snippet's group: its rollouts, the first `num_start` from its start, and their metrics."""
    values, advantages = values_and_advantages(rollouts)
    for index, rollout in enumerate(rollouts):
        episode = group.create_group(str(index))
        episode["observations/proprioceptive"] = rollout.obs
        episode["actions"] = rollout.actions
        episode["mean_actions"] = rollout.mean_actions
        episode["rewards"] = rollout.rewards
        episode["values"] = values[index]
        episode["advantages"] = advantages[index]
    group["early_termination"] = np.array([rollout.failed for rollout in rollouts])
    for name, part in (("start_metrics", rollouts[:num_start]), ("rsi_metrics", rollouts[num_start:])):
        returns = np.array([rollout.rewards.sum() for rollout in part], dtype=np.float32)
        lengths = np.array([len(rollout.rewards) for rollout in part], dtype=np.int64)
        longest = np.array([rollout.max_steps for rollout in part], dtype=np.float64)
        metrics = group.create_group(name)
        metrics["episode_returns"] = returns
        metrics["episode_lengths"] = lengths
        metrics["norm_episode_returns"] = returns / longest
        metrics["norm_episode_lengths"] = lengths / longest


class FileStatistics:
    """Means and variances over all rollouts of a file."""

    def __init__(self, obs_dim: int, action_dim: int) -> None:
        sizes = {"proprio": obs_dim, "act": action_dim, "mean_act": action_dim}
        self._statistics = {name: RunningStatistics(size) for name, size in sizes.items()}

    def add(self, rollouts: Sequence[MocapRollout]) -> None:
        for rollout in rollouts:
            arrays = (rollout.obs, rollout.actions, rollout.mean_actions)
            for statistics, array in zip(self._statistics.values(), arrays, strict=True):
                statistics.update(torch.from_numpy(array))

    def write(self, group: Any) -> None:
        group["count"] = np.int64(self._statistics["proprio"].count)
        for name, statistics in self._statistics.items():
            group[f"{name}_mean"] = statistics.mean.float().numpy()
            group[f"{name}_var"] = statistics.var.float().numpy()


def write_indices(group: Any, obs_sizes: Mapping[str, int]) -> None:
    """Write the indices of each observable in the proprioceptive vector."""
    first = 0
    for name, size in obs_sizes.items():
        group[f"walker/{name}"] = np.arange(first, first + size, dtype=np.int64)
        first += size
