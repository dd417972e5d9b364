"""Metrics of the episodes of an evaluation, and their means by split and by motion clip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..training.evaluation import Summary, estimate
from .walking import Paths

SPLIT = "rollouts"
"""Name of the only split if the episodes are not planned."""
WALKING = "walking"
"""Name of the split of metrics that only walking robots have; its episodes are those of the rollouts."""


@dataclass(frozen=True)
class PlannedEpisode:
    """An episode of an evaluation with fixed starts."""

    split: str
    """Split of its motion clip."""
    clip: str
    """Motion clip that it follows, in whole or in part."""
    max_steps: int
    """Number of control steps without a failure."""


@dataclass(frozen=True)
class EpisodeMetrics:
    """Metrics of the episodes of an evaluation."""

    values: Mapping[str, Tensor]
    """Metric -> its value in each episode, [B]. `total_reward` and `length` are among them."""
    plan: Sequence[PlannedEpisode] = ()
    """The planned episodes; empty where the seed chose the starts.

    With a plan, there are two metrics more: length and return divided by the planned number of steps.
    """

    walking: Mapping[str, Tensor] = field(default_factory=dict)
    """Metric of walking robots -> its value in each episode, [B]; their summary is the split `walking`."""
    paths: Paths | None = None
    """Paths of the first walking robots."""

    def __post_init__(self) -> None:
        if self.plan:
            found = self.values
            steps = torch.tensor([episode.max_steps for episode in self.plan], device=found["length"].device)
            shares = {"normalized_length": found["length"] / steps, "normalized_return": found["total_reward"] / steps}
            object.__setattr__(self, "values", {**shares, **found})

    def summary(self) -> Summary:
        """Return the mean of each metric by split."""
        splits = [episode.split for episode in self.plan] or [SPLIT] * len(self.values["length"])
        found = {
            split: {
                name: estimate([value for value, own in zip(column.tolist(), splits, strict=True) if own == split])
                for name, column in self.values.items()
            }
            for split in dict.fromkeys(splits)
        }
        if self.walking:
            found[WALKING] = {name: estimate(column.tolist()) for name, column in self.walking.items()}
        return found

    def by_clip(self) -> dict[str, dict[str, Any]]:
        """Return clip -> its split, its number of episodes and their mean metrics; empty without a plan."""
        rows: dict[str, list[int]] = {}
        for number, episode in enumerate(self.plan):
            rows.setdefault(episode.clip, []).append(number)
        return {
            clip: {
                "split": self.plan[numbers[0]].split,
                "episodes": len(numbers),
                **{name: float(column[numbers].double().mean()) for name, column in self.values.items()},
            }
            for clip, numbers in rows.items()
        }
