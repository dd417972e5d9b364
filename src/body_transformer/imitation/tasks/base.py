"""Interface of a task: a simulator in which a policy is evaluated, filmed and recorded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import unknown
from ...training.evaluation import Summary, summarize
from ...video import Frame

Act = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]
"""Observations [B, O] -> actions [B, A]."""
OnDone = Callable[[int], object]
"""Called with the number of finished episodes."""


def ignore(done: int) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class Rollout:
    """Outcome of one rollout; fields that a task does not define are None."""

    clip: str
    """Name of the motion or variation of the task; empty if there is only one."""
    length: int
    """Number of steps."""
    total_reward: float
    """Undiscounted return."""
    normalized_length: float | None = None
    """Length divided by the longest possible length."""
    normalized_return: float | None = None
    """Return divided by the longest possible length."""
    success: bool | None = None
    """Success at the last step."""
    success_any: bool | None = None
    """Success at any step."""


@dataclass(frozen=True)
class StepBatch:
    """One step of all running episodes."""

    episodes: npt.NDArray[np.int64]
    """[B] numbers of the episodes."""
    obs: npt.NDArray[Any]
    """[B, O] before the step."""
    clean: npt.NDArray[np.float32]
    """[B, A] the policy's actions before noise."""
    executed: npt.NDArray[np.float32]
    """[B, A] the executed actions, with noise."""
    next_obs: npt.NDArray[Any]
    """[B, O] after the step."""
    rewards: npt.NDArray[np.float64]
    """[B]"""
    terminated: npt.NDArray[np.bool_]
    """[B] whether the task ended the episode."""
    truncated: npt.NDArray[np.bool_]
    """[B] whether the time limit ended the episode."""
    infos: Mapping[str, npt.NDArray[Any]]
    """Name -> [B]"""

    @property
    def over(self) -> npt.NDArray[np.bool_]:
        """[B] whether this was the episode's last step."""
        return self.terminated | self.truncated


@dataclass(frozen=True)
class Trajectory:
    """All observations, actions and rewards of one rollout."""

    seed: int
    """Seed with which the environment was reset."""
    clip: str
    """Name of the motion or variation of the task; empty if there is only one."""
    obs: npt.NDArray[np.float64]
    """[T + 1, O], including the observation after the last step."""
    clean: npt.NDArray[np.float32]
    """[T, A] the policy's actions before noise."""
    executed: npt.NDArray[np.float32]
    """[T, A] the executed actions, with noise."""
    rewards: npt.NDArray[np.float64]
    """[T]"""
    success: npt.NDArray[np.bool_]
    """[T] success after each step; in a task without a goal, whether the episode has not failed yet."""
    terminated: bool
    """True if the task ended the episode, False if the time limit did."""

    @property
    def num_steps(self) -> int:
        return len(self.rewards)

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in (self.obs, self.executed, self.rewards, self.success))


def trajectories(
    steps: Iterable[StepBatch], seeds: Mapping[int, int], clips: Mapping[int, str]
) -> Iterator[Trajectory]:
    """Join steps into whole episodes, in the order of `seeds`; `seeds` and `clips` map episodes to their values."""
    of_episode: dict[int, list[tuple[StepBatch, int]]] = {episode: [] for episode in seeds}
    for step in steps:
        for row, episode in enumerate(step.episodes.tolist()):
            of_episode[episode].append((step, row))
    for episode, rows in of_episode.items():
        last, last_row = rows[-1]
        yield Trajectory(
            seed=seeds[episode],
            clip=clips[episode],
            obs=np.stack([*(step.obs[row] for step, row in rows), last.next_obs[last_row]], dtype=np.float64),
            clean=np.stack([step.clean[row] for step, row in rows]),
            executed=np.stack([step.executed[row] for step, row in rows]),
            rewards=np.array([step.rewards[row] for step, row in rows]),
            success=np.array([step.infos["success"][row] for step, row in rows], dtype=bool),
            terminated=bool(last.terminated[last_row]),
        )


class ImitationTask(ABC):
    """A simulated task with start states, rewards and a rule that ends episodes.

    A task is made with the policy's layout; the other arguments of `__init__` are the task's options.
    """

    splits: tuple[str, ...] = ("validation",)
    """Sets of start states; the first one is the default."""
    metrics: tuple[str, ...] = ("total_reward", "length")
    """Fields of `Rollout` that measure a policy, the most important first."""
    frames_hz: float = 25.0
    """Frame rate of `film`."""

    @abstractmethod
    def rollouts(self, act: Act, num_episodes: int, seed: int, split: str, on_done: OnDone = ignore) -> list[Rollout]:
        """Roll the policy out; equal seeds give equal start states."""

    def film(self, act: Act, seed: int, split: str) -> list[Frame]:
        """Return the frames of one rollout."""
        raise ValueError(f"no film: the task {type(self).__name__} has no method 'film'")

    def close(self) -> None:  # noqa: B027  (most tasks have nothing to release)
        """Release processes and windows."""


class CollectableTask(ImitationTask):
    """A task that can record its rollouts as demonstrations."""

    env_id: str
    """Name of the environment."""
    action_dim: int
    has_success: bool = True
    """Whether the task defines success; if not, datasets hold no successes."""
    requirements: tuple[str, ...]
    """Packages that the outcome of an episode depends on; a dataset records their versions."""

    @abstractmethod
    def record(
        self, act: Act, episodes: range, seed: int, std: npt.NDArray[np.float64] | None = None
    ) -> Iterator[Trajectory]:
        """Play these episodes of the seed, in order, from training start states that no evaluation uses.

        `std` [A] is the standard deviation of Gaussian noise that is added to the actions.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return gymnasium's `observation_space`, `action_space` and `env_spec` (or None) for Minari."""


def checked_actions(actions: npt.ArrayLike, shape: tuple[int, int]) -> npt.NDArray[np.float32]:
    """Return the policy's actions; raise ValueError unless they have this shape and are finite."""
    if np.shape(actions) != shape:
        raise ValueError(f"the policy must return actions {list(shape)}; got {list(np.shape(actions))}")
    if not np.isfinite(actions).all():
        raise ValueError("the policy returned actions that are not finite (NaN or infinite)")
    return np.asarray(actions, dtype=np.float32)


def evaluate(
    act: Act,
    task: ImitationTask,
    num_episodes: int,
    seed: int,
    splits: Sequence[str] = (),
    on_done: Callable[[str, int], object] = lambda split, done: None,
) -> Summary:
    """Roll the policy out `num_episodes` times per split (by default all of the task's) and average the metrics."""
    if num_episodes < 1 or seed < 0:
        raise ValueError(f"num_episodes must be 1 or more and the seed 0 or more; got {num_episodes} and {seed}")
    for split in splits:
        if split not in task.splits:
            raise ValueError(unknown("split", split, task.splits))

    def rollouts(split: str) -> list[Rollout]:
        return task.rollouts(act, num_episodes, seed, split, lambda done: on_done(split, done))

    return {split: summarize(rollouts(split), task.metrics) for split in (splits or task.splits)}
