"""The process that measures: one thread, whatever library it calls.

Libraries read their number of threads when they are loaded, so it has to be set from outside. `run` starts the process
and yields what it says: `{"drawn": 120}` now and then, `{"point": {...}}` after each point.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Generator
from contextlib import suppress
from time import monotonic
from typing import Any

import numpy as np

from .contenders import available
from .flops import Costs
from .sweeps import Settings
from .timing import measure

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
REPORT_S = 0.2


def run(settings: Settings, done: Collection[str]) -> Generator[dict[str, Any]]:
    """Measure in a process of its own what is not yet in `done` (keys of points)."""
    request = json.dumps({"settings": settings.to_dict(), "done": list(done)})
    process = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | dict.fromkeys(THREAD_VARIABLES, "1"),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with suppress(BrokenPipeError):  # it is gone already; its status tells
            process.stdin.write(request)
            process.stdin.close()
        for line in process.stdout:
            yield json.loads(line)
        if process.wait():
            raise OSError(f"the measuring process ended with status {process.returncode}")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends this process
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a parent that was killed has nothing more to hear
    request = json.load(sys.stdin)
    settings, done = Settings.from_dict(request["settings"]), set(request["done"])
    contenders, costs = available(), Costs(exponential=settings.exp_flops)
    gc.disable()  # no pause of Python's own inside a measurement
    progress = Progress()
    for index, point in enumerate(settings.points()):
        if point.key not in done:
            rng = np.random.default_rng([settings.seed, index])
            result = measure(point, contenders, settings.head_dim, rng, costs, progress.drawn)
            progress.flush()
            say({"point": result})
            gc.collect()


class Progress:
    """Tells how many draws were made, a few times a second."""

    def __init__(self) -> None:
        self.count, self.said = 0, monotonic()

    def drawn(self) -> None:
        self.count += 1
        if monotonic() - self.said > REPORT_S:
            self.flush()

    def flush(self) -> None:
        say({"drawn": self.count})
        self.count, self.said = 0, monotonic()


def say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
