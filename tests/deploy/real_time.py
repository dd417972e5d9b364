"""Repeat timed tests that fail while the computer pauses."""

import functools
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

PAUSE_S = 0.02
ATTEMPTS = 6
PROGRAM = """
import os, signal, time
goes_on, longest, parent = [True], 0.0, os.getppid()
signal.signal(signal.SIGTERM, lambda *_: goes_on.clear())
last = time.monotonic()
print("beats", flush=True)
while goes_on and os.getppid() == parent:
    time.sleep(0.001)
    now = time.monotonic()
    longest, last = max(longest, now - last), now
print(max(longest, time.monotonic() - last), flush=True)
"""


@contextmanager
def pauses() -> Iterator[SimpleNamespace]:
    """Yield a process that measures the longest pause of the computer; afterwards, `s` is that pause."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    longest = SimpleNamespace(process=process, s=0.0)
    try:
        yield longest
    finally:
        process.terminate()
        longest.s = float(process.communicate()[0])


def in_real_time(test: Callable[..., None]) -> Callable[..., None]:
    """Repeat a failing test, in an emptied folder, if the computer paused while it ran."""

    @functools.wraps(test)
    def patient(*args: object, **kwargs: object) -> None:
        place = kwargs.get("tmp_path")
        there = set(place.iterdir()) if isinstance(place, Path) else set()
        for attempt in range(1, ATTEMPTS + 1):
            with pauses() as longest:
                try:
                    test(*args, **kwargs)
                    return
                except Exception as error:
                    failure = error
            if longest.s < PAUSE_S or attempt == ATTEMPTS:
                raise failure
            if isinstance(place, Path):
                for left in set(place.iterdir()) - there:
                    shutil.rmtree(left) if left.is_dir() else left.unlink()

    return patient
