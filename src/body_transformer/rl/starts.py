"""Where episodes begin, without a random number at a reset."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .world import World


class Starts:
    """Start states of a world, drawn once; environment e begins its episode k in number first[e] + k.

    So a reset draws no random number: it can be part of a captured graph, and both steps, mjlab's and the lean one,
    begin the same episodes from the same states.
    """

    def __init__(self, world: World, drawn: Sequence[NDArray[np.float64]], seed: int, dtype: torch.dtype) -> None:
        """`drawn`: qpos [starts, nq], qvel [starts, nv], and what else belongs to a start."""
        self.drawn = [torch.tensor(array, dtype=dtype, device=world.device) for array in drawn]
        self.qpos, self.qvel = self.drawn[:2]
        self.episodes = torch.full((world.num_envs,), -1, device=world.device)
        """[B]: number of each environment's present episode."""
        self.first = torch.zeros_like(self.episodes)
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Every environment is to begin anew, at a start that follows from the seed."""
        generator = torch.Generator().manual_seed(seed)
        self.first.copy_(torch.randint(len(self.qpos), self.first.shape, generator=generator))
        self.episodes.fill_(-1)

    def next(self, fresh: Tensor) -> tuple[Tensor, ...]:
        """Counts an episode more where `fresh` [B, bool]; what was drawn for the start of that, [B, …] each."""
        self.episodes.add_(fresh)
        number = (self.first + self.episodes) % len(self.qpos)
        return tuple(column[number] for column in self.drawn)
