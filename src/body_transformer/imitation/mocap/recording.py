"""Rollouts of a controller in the tracking task, in MoCapAct's file layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .environment import TrackingEnvironment
from .snippets import MIN_STEPS, REF_STEPS, Snippet

DISCOUNT = 0.95
GAE_LAMBDA = 0.95
"""Both as MoCapAct's experts were trained with; `values` and `advantages` use them."""
VALUES_NOTE = (
    "values: at each frame, the mean discounted return-to-go (0.95) of the snippet's rollouts that pass it; there is "
    "no learned critic. advantages: GAE(0.95) with these."
)

Floats = npt.NDArray[np.float32]
Controller = Callable[[], npt.NDArray[np.float64]]
"""The mean action [56] in the environment's present state."""


@dataclass(frozen=True)
class Recording:
    """One rollout."""

    start_step: int
    """The clip's frame that it starts at."""
    obs: Floats
    """[T+1, 2868]"""
    actions: Floats
    """[T, 56] drawn around the mean and executed"""
    mean_actions: Floats
    """[T, 56]"""
    rewards: Floats
    """[T]"""
    failed: bool
    """It ended before the snippet did."""
    max_steps: int
    """Steps from its start to the snippet's end."""


def record(
    env: TrackingEnvironment,
    controller: Controller,
    snippet: Snippet,
    start_step: int,
    noise_std: float,
    rng: np.random.Generator,
) -> Recording:
    """Rolls the controller out once; its actions are drawn with this standard deviation and clipped to [-1, 1]."""
    obs = [env.reset(snippet, start_step)]
    max_steps = env.steps_left
    means, actions, rewards = [], [], []
    while True:
        mean = np.clip(controller(), -1.0, 1.0)
        action = np.clip(mean + noise_std * rng.standard_normal(len(mean)), -1.0, 1.0).astype(np.float32)
        outcome = env.step(action)
        means.append(mean)
        actions.append(action)
        rewards.append(outcome.reward)
        obs.append(outcome.obs)
        if outcome.done:
            break
    return Recording(
        start_step,
        np.stack(obs),
        np.stack(actions),
        np.stack(means).astype(np.float32),
        np.array(rewards, dtype=np.float32),
        outcome.failed,
        max_steps,
    )


def random_start(snippet: Snippet, rng: np.random.Generator) -> int:
    """A frame with more than MIN_STEPS steps left, as dm_control draws it."""
    return int(rng.integers(snippet.start, snippet.end - REF_STEPS[-1] - MIN_STEPS))


def values_and_advantages(recordings: Sequence[Recording]) -> tuple[list[Floats], list[Floats]]:
    """Each [T], of the rollouts of one snippet; what they are is in VALUES_NOTE."""
    returns = []
    for recording in recordings:
        to_go = np.zeros(len(recording.rewards) + 1)
        for step in reversed(range(len(recording.rewards))):
            to_go[step] = recording.rewards[step] + DISCOUNT * to_go[step + 1]
        returns.append(to_go[:-1])
    sums: dict[int, list[float]] = {}
    for recording, to_go in zip(recordings, returns, strict=True):
        for step, one in enumerate(to_go):
            sums.setdefault(recording.start_step + step, []).append(float(one))
    values, advantages = [], []
    for recording in recordings:
        value = np.array([np.mean(sums[recording.start_step + step]) for step in range(len(recording.rewards))])
        delta = recording.rewards + DISCOUNT * np.append(value[1:], 0.0) - value
        advantage = np.zeros(len(value) + 1)
        for step in reversed(range(len(value))):
            advantage[step] = delta[step] + DISCOUNT * GAE_LAMBDA * advantage[step + 1]
        values.append(value.astype(np.float32))
        advantages.append(advantage[:-1].astype(np.float32))
    return values, advantages


def write_snippet(group: Any, recordings: Sequence[Recording], num_start: int) -> None:
    """One snippet's group: its episodes (those from the start come first) and how they went."""
    values, advantages = values_and_advantages(recordings)
    for index, recording in enumerate(recordings):
        episode = group.create_group(str(index))
        episode["observations/proprioceptive"] = recording.obs
        episode["actions"] = recording.actions
        episode["mean_actions"] = recording.mean_actions
        episode["rewards"] = recording.rewards
        episode["values"] = values[index]
        episode["advantages"] = advantages[index]
    group["early_termination"] = np.array([recording.failed for recording in recordings])
    for name, part in (("start_metrics", recordings[:num_start]), ("rsi_metrics", recordings[num_start:])):
        returns = np.array([recording.rewards.sum() for recording in part], dtype=np.float32)
        lengths = np.array([len(recording.rewards) for recording in part], dtype=np.int64)
        longest = np.array([recording.max_steps for recording in part], dtype=np.float64)
        metrics = group.create_group(name)
        metrics["episode_returns"] = returns
        metrics["episode_lengths"] = lengths
        metrics["norm_episode_returns"] = returns / longest
        metrics["norm_episode_lengths"] = lengths / longest


class Statistics:
    """Means and variances over everything in a file, summed up as it comes."""

    def __init__(self) -> None:
        self.count = 0
        self._sums: dict[str, Any] = {}

    def add(self, recordings: Sequence[Recording]) -> None:
        for recording in recordings:
            self.count += len(recording.obs)
            parts = {"proprio": recording.obs, "act": recording.actions, "mean_act": recording.mean_actions}
            for name, values in parts.items():
                number, total, squares = self._sums.get(name, (0, 0.0, 0.0))
                wide = values.astype(np.float64)
                self._sums[name] = (number + len(wide), total + wide.sum(0), squares + (wide**2).sum(0))

    def write(self, group: Any) -> None:
        group["count"] = np.int64(self.count)
        for name, (number, total, squares) in self._sums.items():
            mean = total / number
            group[f"{name}_mean"] = mean.astype(np.float32)
            group[f"{name}_var"] = np.maximum(squares / number - mean**2, 0.0).astype(np.float32)


def write_indices(group: Any, obs_sizes: Mapping[str, int]) -> None:
    """Where each observable lies in the proprioceptive vector."""
    first = 0
    for name, size in obs_sizes.items():
        group[f"walker/{name}"] = np.arange(first, first + size, dtype=np.int64)
        first += size
