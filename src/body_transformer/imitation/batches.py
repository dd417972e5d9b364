"""Minibatches of demonstrations in a seeded order; data of any size, of which only a part is in memory.

The order of an epoch is a function of seed and epoch alone. Episodes are permuted and divided into windows that fit in
memory. The steps of each window are permuted, and batches are cut from the windows in order. A run can therefore
resume at any batch and read only the remaining windows.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .episodes import Episodes, Floats, Steps

Ids = npt.NDArray[np.int64]
WINDOW_BYTES = 512 * 2**20
WINDOW_SHARE = 16
"""Approximate minimum number of windows for data that do not fit in one. The first access to new memory can be several
times slower than reading into it, because a virtual machine gets its pages from the host. With two windows for all the
data, the first epoch would be read at a third of the usual speed. With windows of a sixteenth it is hardly slower. The
disadvantage is that steps are shuffled only within a sixteenth of the episodes, which differs from epoch to epoch."""
WINDOW_EPISODES = 64
"""A window has room for at least this many of the longest episodes, so that a batch mixes many of them."""


@dataclass(frozen=True)
class Window:
    """Steps in memory that are consecutive in the epoch."""

    steps: Steps
    """In any order, possibly followed by unused rows."""
    order: Ids
    """[last - first] rows of `steps` in the epoch's order."""
    first: int
    last: int
    """Range of the window's steps in the epoch."""

    def copy(self, first: int, last: int, obs: Floats, actions: Floats) -> None:
        """Copy steps `first` to `last` of the epoch into arrays of that length."""
        rows = self.order[first - self.first : last - self.first]
        # "clip" avoids a bounds check, which costs another copy; the rows are in range
        np.take(self.steps.obs, rows, axis=0, out=obs, mode="clip")
        np.take(self.steps.actions, rows, axis=0, out=actions, mode="clip")


def num_batches(num_steps: int, batch_size: int) -> int:
    """Return the number of batches per epoch; the last may be smaller."""
    return math.ceil(num_steps / batch_size)


def part_of_batch(batch: int, batch_size: int, num_steps: int, rank: int, num_ranks: int) -> tuple[int, int]:
    """Return the range in the epoch of a process's part of a batch."""
    begin = batch * batch_size
    end = min(begin + batch_size, num_steps)
    share = math.ceil((end - begin) / num_ranks)
    start = min(begin + rank * share, end - share)
    return start, start + share


def random_of_epoch(seed: int, epoch: int, stream: int) -> np.random.Generator:
    """Return a generator of an epoch: stream 0 permutes episodes, stream 1 + k the steps of window k."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(epoch, stream)))


def check_batch_size(batch_size: int, num_ranks: int) -> None:
    """Raise unless every process gets an equal part of a batch."""
    if batch_size % num_ranks:
        raise ValueError(f"batch_size must be a multiple of the number of processes; got {batch_size} and {num_ranks}")


class Batches:
    """Batches of `batch_size` steps.

    At most two windows of at most `window_bytes` are in memory: while one is used, a thread reads the next. Data that
    fit in `window_bytes` are read once and kept. Otherwise a window holds a sixteenth of the data or 64 episodes,
    whichever is larger and still fits.

    The last batch of an epoch may be smaller. Each of `num_ranks` processes gets one part of every batch, in the order
    of the ranks. If the last batch cannot be divided evenly, parts overlap.
    """

    def __init__(
        self,
        episodes: Episodes,
        batch_size: int,
        seed: int,
        window_bytes: int = WINDOW_BYTES,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        self.episodes = episodes
        self.batch_size = batch_size
        self.seed = seed
        self.rank, self.num_ranks = rank, num_ranks
        self._lengths: Ids = np.array([info.num_steps for info in episodes.infos], dtype=np.int64)
        self._num_steps = int(self._lengths.sum())
        self.window_steps = window_bytes // (4 * (len(episodes.obs_ids) + episodes.layout.action_dim))
        self._fits = self._num_steps <= self.window_steps
        if not self._fits:
            enough = max(self._num_steps // WINDOW_SHARE, WINDOW_EPISODES * int(self._lengths.max()))
            self.window_steps = min(self.window_steps, enough)
        self._kept: Steps | None = None
        self._buffers: list[Steps] | None = None
        self._check()

    def _check(self) -> None:
        check_batch_size(self.batch_size, self.num_ranks)
        if not self._num_steps:
            raise ValueError("the demonstrations have no steps")
        index = int(self._lengths.argmax())
        longest = int(self._lengths[index])
        if longest > self.window_steps:
            raise ValueError(
                f"episode {index} has {longest} steps, but a window holds only {self.window_steps}: raise window_bytes"
            )

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return num_batches(self._num_steps, self.batch_size)

    def epoch(self, epoch: int, first: int = 0) -> Generator[tuple[Floats, Floats], None, None]:
        """Yield the batches of an epoch from batch `first` on: new arrays obs [b, used entries] and actions [b, A]."""
        parts = [self._part(batch) for batch in range(first, len(self))]
        if not parts:
            return
        with closing(self._windows(epoch, parts[0][0], parts[-1][1])) as windows:
            window = next(windows)
            for begin, end in parts:
                obs, actions = self._allocate(end - begin)
                done = begin
                while done < end:
                    while done >= window.last:
                        window = next(windows)
                    stop = min(end, window.last)
                    part = slice(done - begin, stop - begin)
                    window.copy(done, stop, obs[part], actions[part])
                    done = stop
                yield obs, actions

    def _part(self, batch: int) -> tuple[int, int]:
        """Return the range in the epoch of this process's part of a batch."""
        return part_of_batch(batch, self.batch_size, self._num_steps, self.rank, self.num_ranks)

    def _windows(self, epoch: int, begin: int, end: int) -> Generator[Window, None, None]:
        """Yield the windows that hold these steps of the epoch; each is valid until the next is requested."""
        members = self._members(epoch)
        bounds = [0, *np.cumsum([self._lengths[ids].sum() for ids in members]).tolist()]
        start, stop = (np.searchsorted(bounds, (begin, end - 1), side="right") - 1).tolist()
        with closing(self._read_ahead(members[start : stop + 1])) as read:
            for index, steps in enumerate(read, start):
                low, high = bounds[index], bounds[index + 1]
                yield Window(steps, self._random(epoch, 1 + index).permutation(high - low), low, high)

    def _read_ahead(self, members: list[Ids]) -> Generator[Steps, None, None]:
        """Yield the steps of these episodes, window by window; a thread fills one window while the other is used."""
        if self._fits:
            if self._kept is None:
                self._kept = self._fill(Steps(*self._allocate(self._num_steps)), members[0], threading.Event())
            yield self._kept
            return
        # every epoch uses the same memory, because the first access to new memory takes longer than reading into it
        buffers = self._buffers or [Steps(*self._allocate(self.window_steps)) for _ in range(2)]
        self._buffers = None
        used, spare = buffers
        stopped = threading.Event()
        pool = ThreadPoolExecutor(1, thread_name_prefix="demonstrations")
        try:
            coming = pool.submit(self._fill, used, members[0], stopped)
            for ids in [*members[1:], None]:
                used = coming.result()
                if ids is not None:
                    coming = pool.submit(self._fill, spare, ids, stopped)
                yield used
                spare = used
        finally:
            stopped.set()
            pool.shutdown(cancel_futures=True)
            self._buffers = buffers

    def _members(self, epoch: int) -> list[Ids]:
        """Return the episodes of each window of an epoch; within a window they keep their order on disk."""
        ids = np.flatnonzero(self._lengths)
        if self._fits:
            return [ids]
        ids = self._random(epoch, 0).permutation(ids)
        ends = np.cumsum(self._lengths[ids])
        members, start = [], 0
        while start < len(ids):
            before = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, before + self.window_steps, side="right"))
            members.append(np.sort(ids[start:stop]))
            start = stop
        return members

    def _random(self, epoch: int, stream: int) -> np.random.Generator:
        return random_of_epoch(self.seed, epoch, stream)

    def _allocate(self, num_steps: int) -> tuple[Floats, Floats]:
        """Return empty arrays for observations and actions."""
        sizes = (len(self.episodes.obs_ids), self.episodes.layout.action_dim)
        obs, actions = (np.empty((num_steps, size), np.float32) for size in sizes)
        return obs, actions

    def _fill(self, window: Steps, ids: Ids, stopped: threading.Event) -> Steps:
        """Read these episodes into the window, and return it."""
        row = 0
        for index in ids.tolist():
            if stopped.is_set():
                break
            steps = self.episodes.read(index)
            end = row + int(self._lengths[index])
            if len(steps.obs) != end - row or len(steps.actions) != end - row:
                given = f"{len(steps.obs)} observations and {len(steps.actions)} actions"
                raise ValueError(f"episode {index} should have {end - row} steps; it has {given}")
            window.obs[row:end] = steps.obs
            window.actions[row:end] = steps.actions
            row = end
        return window
