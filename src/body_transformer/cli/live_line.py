"""The line that `bot deploy` shows while it runs."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..deploy.runtime import Runtime, Status
from .beside import beside


@contextmanager
def live_line(runtime: Runtime) -> Iterator[None]:
    """`status_line` on standard error; from a thread, as a slow terminal must not hold the loop."""
    if not sys.stderr.isatty():
        yield
        return

    def show(over: threading.Event) -> None:
        while not over.wait(0.2):
            sys.stderr.write(f"\r\x1b[K{cut(status_line(runtime.status()), width())}")
            sys.stderr.flush()
        sys.stderr.write("\n")

    with beside(show):
        yield


def status_line(now: Status) -> str:
    """Phase and time, the stop, rate, latencies, missed deadlines, interventions; a dash where the robot does not
    tell."""
    where = (
        f"{now.phase.name.lower():<8}{now.elapsed_s:7.1f} s{f'  {now.stop} ' if now.stop else ''} {now.rate_hz:6.1f} Hz"
    )
    trip = f"{now.round_trip_ms:5.1f} ms" if math.isfinite(now.round_trip_ms) else f"{'–':>5}"
    timing = f"step {now.work_ms:5.2f} ms  link {trip}  state {now.age_ms:5.1f} ms old  missed {now.missed}"
    return f"{where}  {timing}  interventions {now.interventions}"


def cut(line: str, columns: int) -> str:
    """One that is too long would be continued in the next row, and stay there. The last column stays free."""
    return line if len(line) < columns else f"{line[: max(columns - 2, 0)]}…"


def width() -> int:
    """Columns of the terminal; 80 where it does not tell."""
    try:
        return max(os.get_terminal_size(sys.stderr.fileno()).columns, 0) or 80
    except OSError:
        return 80
