"""The shared memory of one block, with a check that all accesses are ordered.

Threads run in lockstep here, but not on a GPU, so the last accesses of each byte are recorded. Time is counted in
barriers: accesses of two threads between the same two barriers may happen in any order. A copy (cp.async) is complete
once its thread has waited for it. The reads of a matrix product (wgmma) are complete once its warps have waited for it.
Other threads can rely on both from the next barrier on. Products read through another proxy than all other
instructions, so a fence must separate a write from a product that reads it.
"""

from dataclasses import dataclass

import numpy as np

from .faults import Faults

START = 1024
"""The first address; 0 would be a null pointer."""
NEVER, PENDING = -1, 2**62
"""Special times of an access: it never happened, or it may still happen."""
NO_THREAD, SEVERAL = -1, -2
"""Special threads: none, or more than one."""


@dataclass
class Copy:
    """A copy in flight, which arrives as late as possible."""

    addresses: np.ndarray  # [bytes]
    values: np.ndarray  # [bytes]


class SharedMemory:
    """Shared memory; addresses are [T, n] for T threads with n bytes each, and `mask` [T] selects threads."""

    def __init__(self, size: int, threads: int, faults: Faults) -> None:
        self.end, self.faults = START + size, faults
        self.values = np.full(self.end, 0xFF, np.uint8)  # NaN in every format
        self.now = 0
        self.threads = np.arange(threads)
        # time of the last access
        self.written, self.read, self.product_read = (np.full(self.end, NEVER) for _ in range(3))
        self.writer, self.reader = np.full(self.end, NO_THREAD), np.full(self.end, NO_THREAD)
        self.fenced = np.full(self.end, PENDING)  # time of the first fence after the write
        self.begun: list[Copy] = []
        self.groups: list[list[Copy]] = []

    # -- threads -------------------------------------------------------------------------------------------------------

    def load(self, addresses: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Load [T, n]; values of threads that do not take part are meaningless."""
        mask = self._inside(addresses, mask)
        at, thread = self._of_threads(addresses, mask)
        self.faults.check("reads uninitialised memory", self.writer[at] == NO_THREAD)
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
        self.faults.check("threads write different values", self.values[at] != values[mask].ravel())
        self._record_write(at, thread, self.now)

    def barrier(self) -> None:
        self.now += 1

    # -- copies --------------------------------------------------------------------------------------------------------

    def copy(self, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray) -> None:
        mask = self._inside(addresses, mask)
        at, thread = self._of_threads(addresses, mask)
        self._check_write(at, thread)
        self.values[at] = 0xFF  # the copy may also arrive early, so the old content is lost
        self._record_write(at, thread, PENDING)
        self.begun.append(Copy(at, values[mask].ravel()))

    def commit_copies(self) -> None:
        self.groups.append(self.begun)
        self.begun = []

    def wait_for_copies(self, count: int) -> None:
        """Wait until at most `count` groups are in flight."""
        while len(self.groups) > count:
            for copy in self.groups.pop(0):
                self.values[copy.addresses] = copy.values
                self.written[copy.addresses] = self.now

    # -- products ------------------------------------------------------------------------------------------------------

    def fence(self) -> None:
        """Make earlier writes visible to products."""
        self.fenced[(self.written != PENDING) & (self.fenced == PENDING)] = self.now

    def read_operand(self, addresses: np.ndarray) -> np.ndarray:
        """Return the bytes, in the shape of the addresses, that a product reads if it runs immediately."""
        self.faults.check("a product reads uninitialised memory", self.writer[addresses] == NO_THREAD)
        self.faults.check("a product reads before a barrier", self.written[addresses] >= self.now)
        self.faults.check("a product reads without a fence", self.fenced[addresses] == PENDING)
        self.begin_product_read(addresses)
        return self.values[addresses]

    def begin_product_read(self, addresses: np.ndarray) -> None:
        """Record that a product in flight may read these bytes at any time."""
        self.product_read[addresses] = PENDING

    def end_product_read(self, addresses: np.ndarray) -> None:
        self.product_read[addresses] = self.now

    def clipped(self, addresses: np.ndarray) -> np.ndarray:
        """Return the addresses of a product, with those outside of memory replaced."""
        outside = (addresses < START) | (addresses >= self.end)
        self.faults.check("a product reads beyond shared memory", outside)
        return np.where(outside, START, addresses)

    # -- checks --------------------------------------------------------------------------------------------------------

    def _inside(self, addresses: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return which threads [T] take part and stay within the memory."""
        first, size = addresses[:, 0], addresses.shape[1]
        outside = mask & ((first < START) | (first + size > self.end))
        self.faults.check("access beyond shared memory", outside)
        self.faults.check("misaligned access to shared memory", mask & (first % size != 0))
        return mask & ~outside

    def _of_threads(self, addresses: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return every byte, and its thread."""
        return addresses[mask].ravel(), np.repeat(self.threads[mask], addresses.shape[1])

    def _unordered_write(self, at: np.ndarray, thread: np.ndarray) -> np.ndarray:
        """Return whether another thread wrote the byte since the last barrier, or a copy may still write it."""
        own = (self.writer[at] == thread) & (self.written[at] != PENDING)
        return (self.written[at] >= self.now) & ~own

    def _check_write(self, at: np.ndarray, thread: np.ndarray) -> None:
        self.faults.check("unordered writes", self._unordered_write(at, thread))
        read_by_others = (self.read[at] == self.now) & (self.reader[at] != thread)
        self.faults.check("overwrites data that another thread may still read", read_by_others)
        self.faults.check("overwrites data that a product may still read", self.product_read[at] >= self.now)

    def _record_write(self, at: np.ndarray, thread: np.ndarray, when: int) -> None:
        self.writer[at], self.written[at], self.fenced[at] = thread, when, PENDING
