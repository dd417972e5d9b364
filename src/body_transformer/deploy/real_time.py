"""Timing of the process: exact sleeps, a core of its own, warm caches, signals that stop the robot."""

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
"""A sleeping process wakes up that late, and a shorter sleep empties its caches."""
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGQUIT", "SIGHUP", "SIGTSTP") if hasattr(signal, name)
)
"""Each is an emergency stop. They include a lost terminal and Ctrl-Z, because a suspended controller does not damp."""


def sleep_exactly(seconds: float) -> None:
    """Sleep, and spend the last part of the time awake."""
    until = time.monotonic() + seconds
    if seconds > SPIN_S:
        time.sleep(seconds - SPIN_S)
    while time.monotonic() < until:
        pass


@contextmanager
def quiet_gc() -> Iterator[None]:
    """Keep the garbage collector from going through existing objects while the loop runs."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def stop_signals(stop: Callable[[str], object]) -> Iterator[None]:
    """Give each of SIGNALS to `stop`, by its name; afterwards the old handlers are back."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only, which must stop the robot itself
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
    """Return one core and the others; the only one twice; both empty where processes cannot choose."""
    if sys.platform != "linux":
        return frozenset(), frozenset()
    cores = frozenset(os.sched_getaffinity(0))
    one = frozenset({max(cores)})
    return (one, cores - one) if len(cores) > 1 else (cores, cores)


@contextmanager
def only_on(cores: frozenset[int]) -> Iterator[None]:
    """Keep this thread, and the processes that it starts, on these cores; anywhere if there are none."""
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
"""Calls of the policy in a rehearsal; after four or five it is no quicker."""
COLD = 3.0
"""Duration of a call with cold caches, as a multiple of one with warm caches."""


class Rehearsal:
    """A second controller, one tick behind the first, with the same inputs and without effect.

    Caches are cold after a sleep of some milliseconds. The rehearsal runs the same code on data of the same size, the
    policy included. A controller has neither clock nor link, so its state is always that of the first one a tick ago.
    Then it calls the policy alone until the tick is due: on a shared computer other processes take the caches back
    within half a millisecond.
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
        """Repeat the remembered tick once, then the policy's answer to `obs` while there is time."""
        if self._last is None:
            return
        (step, sent), self._last = self._last, None
        self._second.step(*step)
        self._second.sent(*sent)
        for _ in range(MOST_CALLS):
            if self._clock() + COLD * self.call_s >= until_s:
                return
            self._policy(obs)
