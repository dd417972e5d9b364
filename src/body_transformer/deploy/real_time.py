"""Real time for the loop: exact sleeps, a separate core, warm caches, and signals that stop the robot."""

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

import numpy as np
from numpy.typing import NDArray

from .controller import Controller, Policy
from .robot import Command, State

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
    """Return one core and the other cores; a single core twice; two empty sets where a process cannot choose."""
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


# -- caches ------------------------------------------------------------------------------------------------------------

StepInputs = tuple[int, float, State | None, int, str | None]
SentInputs = tuple[Command, str]
MOST_CALLS = 8
"""Most policy calls in a rehearsal; after four or five they get no faster."""
COLD = 3.0
"""Duration of a call with cold caches, as a multiple of one with warm caches."""


class Rehearsal:
    """A second controller that repeats the last tick, without effect, to warm the caches before the next one.

    Caches are cold after a sleep of some milliseconds. The repetition runs the same code, policy included, on data of
    the same size. A controller uses neither clock nor link, so the second one is in the state of the first one a tick
    ago. Then the policy alone is called until the tick is due, because on a shared computer other processes evict the
    caches within half a millisecond.
    """

    def __init__(self, second: Controller, policy: Policy, clock: Callable[[], float]) -> None:
        self._second, self._policy, self._clock = second, policy, clock
        self.call_s = 0.0
        """Duration of the policy's call with warm caches."""
        self._last: tuple[StepInputs, SentInputs] | None = None

    def remember(self, step: StepInputs, sent: SentInputs) -> None:
        """Keep the inputs of this tick's `step` and `sent`; nothing is copied."""
        self._last = step, sent

    def __call__(self, obs: NDArray[np.float32], until_s: float) -> None:
        """Repeat the remembered tick once, then call the policy with `obs` while there is time."""
        if self._last is None:
            return
        (step, sent), self._last = self._last, None
        self._second.step(*step)
        self._second.sent(*sent)
        for _ in range(MOST_CALLS):
            if self._clock() + COLD * self.call_s >= until_s:
                return
            self._policy(obs)
