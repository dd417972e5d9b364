"""The emergency stop of `bot deploy`: keys as long as there is a robot, signals until its log is written."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ..deploy.runtime import Runtime
from .beside import beside
from .output import complain

KEYS = frozenset(b" \r\nq")


class Emergency:
    """Hands on to the runtime who wants to stop, also if that was before there was one."""

    def __init__(self) -> None:
        self._why: str | None = None
        self._interrupted = False
        self._runtime: Runtime | None = None

    def watch(self, runtime: Runtime) -> None:
        """From now on this one is stopped; at once, if somebody has asked for it."""
        self._runtime = runtime
        if self._why is not None:
            runtime.stop(self._why)

    def stop(self, why: str) -> None:
        """From any thread."""
        self._why = self._why or why
        if self._runtime is not None:
            self._runtime.stop(why)

    def signal(self, name: str) -> None:
        """As `stop`; but who opens a robot may wait for long, so that the first one before the runtime interrupts."""
        self.stop(name)
        if self._runtime is None and not self._interrupted:
            self._interrupted = True
            raise KeyboardInterrupt


@contextmanager
def stop_key(stop: Callable[[str], object]) -> Iterator[None]:
    """Space, Enter or q stop the robot, if somebody sits at a keyboard; what was typed before counts."""
    keyboard = sys.stdin.fileno() if sys.stdin and sys.stdin.isatty() else None
    if keyboard is None or not in_foreground(keyboard):
        where = "there is no keyboard" if keyboard is None else "it runs in the background"
        complain(f"bot deploy: no key stops this run, as {where}; kill -INT {os.getpid()} does")
        yield
        return
    import termios
    import tty

    def listen(over: threading.Event) -> None:
        while not over.is_set():
            if not select.select([keyboard], [], [], 0.05)[0]:
                continue
            try:
                typed = os.read(keyboard, 64)
            except OSError:
                typed = b""
            if not typed or KEYS & set(typed):
                stop("key" if typed else "the terminal is gone")
                return

    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard, termios.TCSADRAIN)  # the default throws away what was typed
        with beside(listen):
            yield
    finally:
        with suppress(termios.error):  # it may be gone
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def in_foreground(keyboard: int) -> bool:
    """Who changes the settings of his terminal from the background is suspended, with the robot in his hands."""
    try:
        return os.tcgetpgrp(keyboard) == os.getpgrp()
    except OSError:  # the terminal of another session: it suspends nobody of ours
        return True
