"""Real time for the loop: exact sleeps, a separate core, and signals that stop the robot."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SPIN_S = 0.0005
"""Length of the busy-wait: a process may wake up this late, and a shorter sleep would empty its caches."""
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGQUIT", "SIGHUP", "SIGTSTP") if hasattr(signal, name)
)
"""Each is an emergency stop. They include a lost terminal and Ctrl-Z, because a suspended controller does not damp."""


def sleep_exactly(seconds: float) -> None:
    """Sleep, and busy-wait for the last SPIN_S."""
    until = time.monotonic() + seconds
    if seconds > SPIN_S:
        time.sleep(seconds - SPIN_S)
    while time.monotonic() < until:
        pass


@contextmanager
def quiet_gc() -> Iterator[None]:
    """Keep the garbage collector from scanning existing objects while the loop runs."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def stop_signals(stop: Callable[[str], object]) -> Iterator[None]:
    """Call `stop` with a signal's name for each of SIGNALS that arrives; restore the old handlers at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only, which must stop the robot
        return

    def handle(number: int, frame: FrameType | None) -> None:
        stop(signal.Signals(number).name)

    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        for number in SIGNALS:
            signal.signal(number, handle)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- cores -------------------------------------------------------------------------------------------------------------


def split_cores() -> tuple[frozenset[int], frozenset[int]]:
    """Return one core and the other cores: a single core twice, and empty sets where a process cannot choose cores."""
    if sys.platform != "linux":
        return frozenset(), frozenset()
    cores = frozenset(os.sched_getaffinity(0))
    one = frozenset({max(cores)})
    return (one, cores - one) if len(cores) > 1 else (cores, cores)


@contextmanager
def only_on(cores: frozenset[int]) -> Iterator[None]:
    """Keep this thread and the processes that it starts on these cores; an empty set changes nothing."""
    if sys.platform != "linux" or not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
