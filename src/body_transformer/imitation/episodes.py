"""Demonstrations, whatever file they are in: what is there is known at once, the steps are read when asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..body.layout import UNUSED, Layout
from ..errors import listing

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class EpisodeInfo:
    """What is known of an episode before it is read."""

    num_steps: int
    """Pairs of observation and action."""
    clip: str = ""
    """What it shows: a motion, a variation of the task; empty if there is one only."""
    split: str = "train"
    """The part of the data that it belongs to: train or validation."""


@dataclass(frozen=True)
class Steps:
    """The steps of an episode, in order."""

    obs: Floats
    """[T, len(obs_ids)]"""
    actions: Floats
    """[T, A]"""


class Episodes(ABC):
    """A set of demonstrations for one layout.

    Nobody reads entries that no node owns: `read` gives the observation's used entries only, `obs_ids` says which
    those are.
    """

    def __init__(self, layout: Layout, infos: Sequence[EpisodeInfo]) -> None:
        self.layout = layout
        self.infos = tuple(infos)
        self.obs_ids: npt.NDArray[np.int64] = np.flatnonzero(layout.obs_node_ids != UNUSED)

    @abstractmethod
    def read(self, index: int) -> Steps:
        """The steps of one episode, from disk."""

    def origin(self, index: int) -> str:
        """The file that an episode is from, and where in it; empty if it is from none."""
        return ""

    def __len__(self) -> int:
        return len(self.infos)

    @property
    def num_steps(self) -> int:
        return sum(info.num_steps for info in self.infos)

    def named(self, steps: Steps) -> dict[str, Floats]:
        """Term name -> [T, size], of the terms that are used."""
        columns = {int(entry): column for column, entry in enumerate(self.obs_ids)}
        found = {}
        for name, place in self.layout.obs_slices.items():
            ids = [columns[entry] for entry in range(place.start, place.stop) if entry in columns]
            if ids:
                found[name] = steps.obs[:, ids]
        return found

    def select(self, keep: Callable[[EpisodeInfo], bool]) -> Episodes:
        """Those episodes of which this is true."""
        return Subset(self, [index for index, info in enumerate(self.infos) if keep(info)])

    def split(self, name: str) -> Episodes:
        """The episodes of one part of the data."""
        there = sorted({info.split for info in self.infos})
        if name not in there:
            raise ValueError(f"these demonstrations have no split {name!r}; have: {listing(there)}")
        return self.select(lambda info: info.split == name)

    def draw(self, number: int, seed: int) -> Episodes:
        """So many of them, drawn without repetition."""
        if not 1 <= number <= len(self):
            raise ValueError(f"cannot draw {number} demonstrations: there are {len(self)}")
        order = np.random.default_rng(seed).permutation(len(self))
        return Subset(self, sorted(order[:number].tolist()))


class Subset(Episodes):
    """Some episodes of others."""

    def __init__(self, whole: Episodes, indices: Sequence[int]) -> None:
        super().__init__(whole.layout, [whole.infos[index] for index in indices])
        self.whole = whole
        self.indices = tuple(indices)

    def read(self, index: int) -> Steps:
        return self.whole.read(self.indices[index])

    def origin(self, index: int) -> str:
        return self.whole.origin(self.indices[index])


class InMemory(Episodes):
    """Episodes that are held already; `obs` [T, O] has every entry of the layout's observation."""

    def __init__(self, layout: Layout, infos: Sequence[EpisodeInfo], obs: Sequence[Floats], actions: Sequence[Floats]):
        super().__init__(layout, infos)
        self._steps = [
            Steps(np.ascontiguousarray(one[:, self.obs_ids], dtype=np.float32), np.asarray(two, dtype=np.float32))
            for one, two in zip(obs, actions, strict=True)
        ]

    def read(self, index: int) -> Steps:
        return self._steps[index]
