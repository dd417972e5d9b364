"""Which cores a thread runs on: two programs in real time on one computer had better not share one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def split() -> tuple[frozenset[int], frozenset[int]]:
    """One core, and the others; the only one twice. Both are empty where programs cannot choose."""
    if sys.platform != "linux":
        return frozenset(), frozenset()
    cores = frozenset(os.sched_getaffinity(0))
    one = frozenset({max(cores)})
    return (one, cores - one) if len(cores) > 1 else (cores, cores)


@contextmanager
def only(cores: frozenset[int]) -> Iterator[None]:
    """This thread, and what it starts meanwhile, on these cores; anywhere if there are none."""
    if sys.platform != "linux" or not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
