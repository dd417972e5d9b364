"""The shared memory of one block, and whether what is read and written there happens in an order that is certain.

Threads run in step here and need not on a card, so each byte remembers who used it last and when. Time is counted in
barriers: what two threads do between the same two of them may happen in any order. A copy (cp.async) has written when
its thread waited for it, a matrix product (wgmma) has read when its warps waited for it; that is in the order of other
threads after the next barrier. A product reads through another proxy than all else, so a fence has to come between
what was written and the product.
"""

from dataclasses import dataclass

import numpy as np

from .faults import Faults

START = 1024
"""The first address: a null pointer is none."""
NEVER, PENDING = -1, 2**62
"""In place of a time: it has not happened, it may still happen."""
NOBODY, SEVERAL = -1, -2
"""In place of a thread."""


@dataclass
class Copy:
    """On its way: it arrives as late as it may."""

    addresses: np.ndarray  # [bytes]
    values: np.ndarray  # [bytes]


class SharedMemory:
    """Addresses are [T, n] of T threads, n bytes each; `mask` [T] says which threads take part."""

    def __init__(self, size: int, threads: int, faults: Faults) -> None:
        self.end, self.faults = START + size, faults
        self.values = np.full(self.end, 0xFF, np.uint8)  # NaN in every format
        self.now = 0
        self.threads = np.arange(threads)
        self.written, self.read, self.multiplied = (np.full(self.end, NEVER) for _ in range(3))  # when last
        self.writer, self.reader = np.full(self.end, NOBODY), np.full(self.end, NOBODY)
        self.fenced = np.full(self.end, PENDING)  # when first after it was written
        self.begun: list[Copy] = []
        self.groups: list[list[Copy]] = []

    # -- threads -------------------------------------------------------------------------------------------------------

    def load(self, addresses: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """[T, n]; what threads that take no part get means nothing."""
        mask = self._inside(addresses, mask)
        at, thread = self._of_threads(addresses, mask)
        self.faults.check("reads what nobody wrote", self.writer[at] == NOBODY)
        self.faults.check("reads too early", self._unordered_write(at, thread))
        others = (self.read[at] == self.now) & (self.reader[at] != thread)
        self.reader[at] = np.where(others, SEVERAL, thread)
        places, counts = np.unique(at, return_counts=True)
        self.reader[places[counts > 1]] = SEVERAL
        self.read[at] = self.now
        return self.values[np.where(mask[:, None], addresses, START)]

    def store(self, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray) -> None:
        mask = self._inside(addresses, mask)
        at, thread = self._of_threads(addresses, mask)
        self._check_write(at, thread)
        self.values[at] = values[mask].ravel()
        self.faults.check("threads disagree on what to write", self.values[at] != values[mask].ravel())
        self._wrote(at, thread, self.now)

    def barrier(self) -> None:
        self.now += 1

    # -- copies --------------------------------------------------------------------------------------------------------

    def copy(self, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray) -> None:
        mask = self._inside(addresses, mask)
        at, thread = self._of_threads(addresses, mask)
        self._check_write(at, thread)
        self.values[at] = 0xFF  # it may also arrive early: what was there is gone
        self._wrote(at, thread, PENDING)
        self.begun.append(Copy(at, values[mask].ravel()))

    def commit_copies(self) -> None:
        self.groups.append(self.begun)
        self.begun = []

    def wait_for_copies(self, count: int) -> None:
        """Until no more than `count` groups are on their way."""
        while len(self.groups) > count:
            for copy in self.groups.pop(0):
                self.values[copy.addresses] = copy.values
                self.written[copy.addresses] = self.now

    # -- products ------------------------------------------------------------------------------------------------------

    def fence(self) -> None:
        """What was written before may be multiplied."""
        self.fenced[(self.written != PENDING) & (self.fenced == PENDING)] = self.now

    def multiply(self, addresses: np.ndarray) -> np.ndarray:
        """What a product reads at these bytes, of any shape, if it reads at once."""
        self.faults.check("a product reads what nobody wrote", self.writer[addresses] == NOBODY)
        self.faults.check("a product reads before a barrier", self.written[addresses] >= self.now)
        self.faults.check("a product reads with no fence before", self.fenced[addresses] == PENDING)
        self.faults.check_note("a fence only on the reader's side", self.fenced[addresses] == self.now)
        self.multiplied_from_now(addresses)
        return self.values[addresses]

    def multiplied_from_now(self, addresses: np.ndarray) -> None:
        """A product in flight may read there at any time."""
        self.multiplied[addresses] = PENDING

    def multiplied_until_now(self, addresses: np.ndarray) -> None:
        self.multiplied[addresses] = self.now

    def clipped(self, addresses: np.ndarray) -> np.ndarray:
        """The addresses of a product, those beyond the memory replaced."""
        outside = (addresses < START) | (addresses >= self.end)
        self.faults.check("a product reads beyond shared memory", outside)
        return np.where(outside, START, addresses)

    # -- checks --------------------------------------------------------------------------------------------------------

    def _inside(self, addresses: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """[T]: which threads take part and stay within the memory."""
        first, size = addresses[:, 0], addresses.shape[1]
        outside = mask & ((first < START) | (first + size > self.end))
        self.faults.check("beyond shared memory", outside)
        self.faults.check("misaligned in shared memory", mask & (first % size != 0))
        return mask & ~outside

    def _of_threads(self, addresses: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Every byte, and whose it is."""
        return addresses[mask].ravel(), np.repeat(self.threads[mask], addresses.shape[1])

    def _unordered_write(self, at: np.ndarray, thread: np.ndarray) -> np.ndarray:
        """Whether the byte was written by another thread since the last barrier, or is yet to be by a copy."""
        own = (self.writer[at] == thread) & (self.written[at] != PENDING)
        return (self.written[at] >= self.now) & ~own

    def _check_write(self, at: np.ndarray, thread: np.ndarray) -> None:
        self.faults.check("two write", self._unordered_write(at, thread))
        read_by_others = (self.read[at] == self.now) & (self.reader[at] != thread)
        self.faults.check("overwrites what another thread may still read", read_by_others)
        self.faults.check("overwrites what a product may still read", self.multiplied[at] >= self.now)

    def _wrote(self, at: np.ndarray, thread: np.ndarray, when: int) -> None:
        self.writer[at], self.written[at], self.fenced[at] = thread, when, PENDING
