"""The terminal of `bot deploy`: the emergency stop by key or signal, and the status line."""

from __future__ import annotations

import math
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ..deploy.runtime import Runtime
from ..text import printable
from .output import complain

KEYS = frozenset(b" \r\nq")
"""Each is an emergency stop."""
NO_WRAP, WRAP = "\x1b[?7l", "\x1b[?7h"
"""A terminal cuts the text between these at its last column."""


@contextmanager
def in_thread(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `work` in a thread, which must end soon after its event is set at the end of the block."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(1)


# -- emergency stop ----------------------------------------------------------------------------------------------------


class Emergency:
    """Pass stop requests on to the runtime, including those made before the runtime exists."""

    def __init__(self) -> None:
        self._why: str | None = None
        self._interrupted = False
        self._runtime: Runtime | None = None

    def watch(self, runtime: Runtime) -> None:
        """Stop this runtime from now on; at once, if a stop was requested before."""
        self._runtime = runtime
        if self._why is not None:
            runtime.stop(self._why)

    def stop(self, why: str) -> None:
        """Request a stop; may be called from any thread."""
        self._why = self._why or why
        if self._runtime is not None:
            self._runtime.stop(why)

    def signal(self, name: str) -> None:
        """Request a stop; before the runtime exists, also interrupt, because opening a robot may take long."""
        self.stop(name)
        if self._runtime is None and not self._interrupted:
            self._interrupted = True
            raise KeyboardInterrupt


@contextmanager
def stop_key(stop: Callable[[str], object]) -> Iterator[None]:
    """Call `stop` on Space, Enter or q, if there is a keyboard; keys typed earlier count, too."""
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
        tty.setcbreak(keyboard, termios.TCSADRAIN)  # the default discards typed keys
        with in_thread(listen):
            yield
    finally:
        with suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def in_foreground(keyboard: int) -> bool:
    """Return whether this process may change the terminal; in the background, trying would suspend the process."""
    try:
        return os.tcgetpgrp(keyboard) == os.getpgrp()
    except OSError:  # the terminal of another session, which cannot suspend this process
        return True


# -- status line -------------------------------------------------------------------------------------------------------


@contextmanager
def live_line(runtime: Runtime) -> Iterator[None]:
    """Show `status_line` on standard error, from a thread, because a slow terminal must not block the loop."""
    if not sys.stderr.isatty():
        yield
        return

    def show(over: threading.Event) -> None:
        while not over.wait(0.2):
            sys.stderr.write(f"\r\x1b[K{NO_WRAP}{status_line(runtime)}{WRAP}")
            sys.stderr.flush()
        sys.stderr.write("\n")

    with in_thread(show):
        yield


def status_line(runtime: Runtime) -> str:
    """Return phase, time, stop, rate, latencies, missed deadlines and interventions; a dash for an unknown latency."""
    controller, elapsed_s, trip_s = runtime.controller, runtime.elapsed_s, runtime.robot.round_trip_s
    stop = f"  {printable(controller.interventions.stop)} " if controller.interventions.stop else ""
    rate_hz = runtime.log.num_ticks / elapsed_s if elapsed_s > 0 else 0.0
    where = f"{controller.phase.name.lower():<8}{elapsed_s:7.1f} s{stop} {rate_hz:6.1f} Hz"
    # a round trip is below 0 while a simulated robot that was late catches up
    trip = f"{1e3 * max(trip_s, 0.0):5.1f} ms" if math.isfinite(trip_s) else f"{'–':>5}"
    timing = f"step {1e3 * runtime.work_s:5.2f} ms  link {trip}  state {1e3 * controller.age_s:5.1f} ms old"
    return f"{where}  {timing}  missed {runtime.missed}  interventions {controller.interventions.total}"
