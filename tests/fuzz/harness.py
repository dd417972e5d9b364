"""Run a worker on many inputs; if one ends or stops it, name that input and go on with the next."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SHARED_MEMORY = Path("/dev/shm")
READY = "ready"
MAX_ENDS = 20
"""Number of inputs that may end the worker before the harness gives up; each costs seconds."""


@dataclass
class Tally:
    """Outcomes of the inputs of one reader."""

    reader: str
    counts: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    slowest: int = -1
    """Number of the slowest input."""
    peak_bytes: int = 0
    faults: dict[int, str] = field(default_factory=dict)
    """Number of an input -> what is wrong with it."""

    def add(self, reply: dict[str, Any]) -> None:
        """Count a result."""
        self.counts[reply["outcome"]] += 1
        if reply["seconds"] > self.slowest_s:
            self.slowest_s, self.slowest = reply["seconds"], reply["index"]
        if reply["outcome"] == "fault":
            self.faults[reply["index"]] = reply["text"]

    def merge(self, other: Tally) -> None:
        """Add the outcomes of further inputs."""
        self.counts.update(other.counts)
        self.faults.update(other.faults)
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)
        if other.slowest_s > self.slowest_s:
            self.slowest_s, self.slowest = other.slowest_s, other.slowest


class Harness:
    """A worker and its scratch folder."""

    def __init__(self) -> None:
        place = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        self.scratch = Path(tempfile.mkdtemp(prefix="fuzz-", dir=place))
        self._process: subprocess.Popen[str] | None = None
        self._ready: set[str] = set()
        """Readers whose valid inputs the process has read."""
        self._end = ""

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.kill()
        self._stop()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def run(self, reader: str, num_inputs: int, seed: int = 0, start: int = 0, keep: str = "") -> Tally:
        """Read inputs `start` to `start + num_inputs - 1` of a reader."""
        tally, stop = Tally(reader), start + num_inputs
        while start < stop:
            for reply in self._replies(
                {"reader": reader, "seed": seed, "start": start, "stop": stop, "keep": keep, "case": ""}
            ):
                if "done" in reply:
                    tally.peak_bytes = max(tally.peak_bytes, reply["peak_bytes"])
                else:
                    tally.add(reply)
                    start = reply["index"] + 1
            if self._process is not None:  # it answered every input
                break
            if start < stop:
                text = f"the process ended: {self._end}"
                tally.add({"outcome": "fault", "seconds": 0.0, "index": start, "text": text})
                start += 1
                if sum(fault.startswith("the process ended") for fault in tally.faults.values()) > MAX_ENDS:
                    break
        return tally

    def case(self, reader: str, name: str) -> dict[str, Any]:
        """Read an input of `cases.CASES`."""
        found = list(self._replies({"reader": reader, "seed": 0, "start": 0, "stop": 1, "case": name}))
        return found[0] if found else {"outcome": "fault", "text": f"the process ended: {self._end}"}

    def _replies(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        process = self._process = self._process or self._start()
        request["ready"] = request["reader"] in self._ready
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            reply = json.loads(line)
            yield reply
            if "done" in reply:
                self._ready.add(request["reader"])
                return
        status = self._stop()
        name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        error = (self.scratch / "errors.txt").read_text(errors="replace")[-3000:]
        self._end = f"{name}: {error}"

    def _start(self) -> subprocess.Popen[str]:
        errors = (self.scratch / "errors.txt").open("w")
        limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NO_COLOR"), "1")
        with errors:
            process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.worker", str(self.scratch)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env={**os.environ, **limits, "MUJOCO_GL": "disabled", "MPLBACKEND": "Agg", "HOME": str(self.scratch)},
            )
        assert process.stdout is not None
        if process.stdout.readline().strip() != READY:
            raise RuntimeError(f"the worker did not start: {(self.scratch / 'errors.txt').read_text()[-3000:]}")
        return process

    def _stop(self) -> int:
        process, self._process = self._process, None
        self._ready.clear()
        if process is None:
            return 0
        if process.stdin is not None:
            process.stdin.close()
        try:
            return process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
