"""Demonstrations from any source: lengths and splits are known at once, steps are read on access."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..body.layout import UNUSED, Layout
from ..errors import listing

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class EpisodeInfo:
    """Facts about an episode that are known before it is read."""

    num_steps: int
    """Number of pairs of observation and action."""
    clip: str = ""
    """Name of the motion or variation of the task; empty if there is only one."""
    split: str = "train"
    """Part of the data: train or validation."""


@dataclass(frozen=True)
class Steps:
    """The steps of an episode, in order."""

    obs: Floats
    """[T, len(obs_ids)]"""
    actions: Floats
    """[T, A]"""


class Episodes(ABC):
    """A set of demonstrations for one layout.

    Entries of the observation that no node owns are never read: `read` returns the used entries, and `obs_ids` are
    their indices.
    """

    files: Mapping[str, str] = {}
    """Name and content of text files that describe these demonstrations; a run keeps them in its folder."""

    def __init__(self, layout: Layout, infos: Sequence[EpisodeInfo]) -> None:
        self.layout = layout
        self.infos = tuple(infos)
        self.obs_ids: npt.NDArray[np.int64] = np.flatnonzero(layout.obs_node_ids != UNUSED)

    @abstractmethod
    def read(self, index: int) -> Steps:
        """Read the steps of one episode."""

    def origin(self, index: int) -> str:
        """Return an episode's file and its place there; empty if it has no file."""
        return ""

    def __len__(self) -> int:
        return len(self.infos)

    @property
    def num_steps(self) -> int:
        return sum(info.num_steps for info in self.infos)

    def split(self, name: str) -> Episodes:
        """Return the episodes of one split."""
        have = sorted({info.split for info in self.infos})
        if name not in have:
            raise ValueError(f"these demonstrations have no split {name!r}; have: {listing(have)}")
        return self.subset([index for index, info in enumerate(self.infos) if info.split == name])

    def draw(self, number: int, seed: int) -> Episodes:
        """Draw `number` episodes without replacement."""
        if not 1 <= number <= len(self):
            raise ValueError(f"the number of demonstrations must be from 1 to {len(self)}; got {number}")
        order = np.random.default_rng(seed).permutation(len(self))
        return self.subset(sorted(order[:number].tolist()))

    def subset(self, indices: Sequence[int]) -> Episodes:
        """Return some of the episodes."""
        return Subset(self, indices)


class Subset(Episodes):
    """Some of the episodes of another set."""

    def __init__(self, whole: Episodes, indices: Sequence[int]) -> None:
        super().__init__(whole.layout, [whole.infos[index] for index in indices])
        self.whole = whole
        self.indices = tuple(indices)

    def read(self, index: int) -> Steps:
        return self.whole.read(self.indices[index])

    def origin(self, index: int) -> str:
        return self.whole.origin(self.indices[index])


class InMemory(Episodes):
    """Episodes in memory; `obs` [T, O] has every entry of the layout's observation."""

    def __init__(self, layout: Layout, infos: Sequence[EpisodeInfo], obs: Sequence[Floats], actions: Sequence[Floats]):
        super().__init__(layout, infos)
        self._steps = [
            Steps(np.ascontiguousarray(one[:, self.obs_ids], dtype=np.float32), np.asarray(two, dtype=np.float32))
            for one, two in zip(obs, actions, strict=True)
        ]

    def read(self, index: int) -> Steps:
        return self._steps[index]
