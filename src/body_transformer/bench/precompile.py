"""Peers compiled ahead of the timed run, by several processes at once.

PyTorch's compiler keeps what it made on disk: a process that has run the same code on the same shapes leaves it there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from .measure import Say


def precompile(jobs: Sequence[Sequence[str]], workers: int, say: Say) -> None:
    """Runs `bot bench ARGS --compile-only` for each ARGS, `workers` at a time; whoever fails is compiled later."""
    with ThreadPoolExecutor(workers) as pool:
        futures = {pool.submit(_run, args, workers): " ".join(args) for args in jobs}
        try:
            for count, future in enumerate(as_completed(futures), 1):
                status = future.result()
                end = f" ended with status {status}; its peers are compiled in their turn" if status else ""
                say(f"compiled {count} of {len(jobs)}: {futures[future]}{end}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run(args: Sequence[str], workers: int) -> int:
    command = [sys.executable, "-m", "body_transformer.cli.main", "bench", *args, "--compile-only"]
    threads = str(max(1, (os.cpu_count() or 1) // workers))
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": threads},
    )
    return done.returncode
