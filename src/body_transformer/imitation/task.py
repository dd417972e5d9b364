"""Task: where a policy is tried out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..video import Frame

Act = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]
"""Observations [B, O] -> actions [B, A]."""


@dataclass(frozen=True)
class Result:
    """How one rollout went; a task gives the values that it knows."""

    clip: str
    """What was to be done: a motion, a variation of the task; empty if there is one only."""
    length: int
    """Steps until the end."""
    total_reward: float
    """The return."""
    normalized_length: float | None = None
    """Length over the longest possible."""
    normalized_return: float | None = None
    """Return over the longest possible length."""
    success: bool | None = None
    """At the last step."""
    success_any: bool | None = None
    """At any step."""


class Task(ABC):
    """A simulator and its rules."""

    splits: tuple[str, ...]
    """The sets of starts that rollouts can be drawn from; the first is the usual one."""
    metrics: tuple[str, ...]
    """The fields of `Result` that say how good a policy is, the most telling first."""
    frames_hz: float
    """How many frames of `film` a second has."""

    @abstractmethod
    def rollouts(
        self,
        act: Act,
        num_episodes: int,
        seed: int,
        split: str,
        on_done: Callable[[int], object] = lambda done: None,
    ) -> list[Result]:
        """Tries the policy; the same seed gives the same starts. `on_done` hears how many episodes are over."""

    @abstractmethod
    def film(self, act: Act, seed: int, split: str) -> list[Frame]:
        """One rollout, as pictures."""

    def close(self) -> None:  # noqa: B027, most tasks hold nothing
        """Gives back what it holds: processes, windows."""
