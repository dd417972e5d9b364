"""The process that measures, with one thread in every library.

Libraries read their number of threads when they are loaded, so it must be set from outside. `run` starts the process
and yields its messages: `{"drawn": 120}` now and then, `{"point": {...}}` after each point.
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

from ...schema import build, plain
from .algorithms import available
from .sweeps import PaperSettings, measure

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
REPORT_S = 0.2


def run(settings: PaperSettings, done: Collection[str]) -> Generator[dict[str, Any]]:
    """Measure in a new process the points whose keys are not yet in `done`."""
    request = json.dumps({"settings": plain(settings), "done": list(done)})
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
        with suppress(BrokenPipeError):  # the process has ended already; its status is reported below
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
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end with the parent
    request = json.load(sys.stdin)
    settings, done = build(PaperSettings, request["settings"]), set(request["done"])
    implementations, progress = available(), DrawProgress()
    gc.disable()  # no garbage collection inside a measurement
    for index, point in enumerate(settings.points()):
        if point.key not in done:
            rng = np.random.default_rng([settings.seed, index])
            result = measure(point, implementations, settings.head_dim, rng, settings.exp_flops, progress.drawn)
            progress.flush()
            send({"point": result})
            gc.collect()


class DrawProgress:
    """Sends the number of new draws a few times per second."""

    def __init__(self) -> None:
        self.count, self.sent = 0, monotonic()

    def drawn(self) -> None:
        self.count += 1
        if monotonic() - self.sent > REPORT_S:
            self.flush()

    def flush(self) -> None:
        send({"drawn": self.count})
        self.count, self.sent = 0, monotonic()


def send(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
