"""Signals that mean: stop the robot."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGQUIT", "SIGHUP", "SIGTSTP") if hasattr(signal, name)
)
"""Each is an emergency stop; a lost terminal is one, too, and so is Ctrl-Z: a suspended controller damps nothing."""


@contextmanager
def handled(stop: Callable[[str], object]) -> Iterator[None]:
    """Each goes to `stop`, by its name; afterwards the old handlers are back."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only; its owner stops the robot
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
