"""Run `bot deploy` on the simulated robot for an hour while the load of the computer changes.

    bot export pretrained:a1-walk --out a1
    python benchmarks/soak.py a1 --out build/soak
    python benchmarks/soak_tables.py build/soak                  # write the tables again
    python benchmarks/soak.py a1 --under "chrt -f 50"            # with real-time priority, which needs the rights to it

The load changes every five minutes: none (idle), one busy process per core (busy), two processes per core that are
busy for random fractions of a second (bursts). All of them copy arrays larger than the caches. The controller runs as
users start it, with its status line on a terminal, from which missed deadlines and interventions are read. A run that
ends early, in damping, is followed by another until the time is over.

Every second, resident memory, threads, file descriptors and processor time of the controller and of the robot's process
are read from /proc. `others` is the processor time of all programs that the script has not started, in cores.

Writes OUT/samples.jsonl, OUT/runs.json, OUT/table.md (soak_tables.py), and the log of every run, which holds its last
20 minutes.
"""

import argparse
import json
import multiprocessing
import os
import pty
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import soak_tables
from soak_tables import PHASES, PROCESSES, Sample

from body_transformer.files import atomic_write

COPIED_BYTES = 32_000_000
"""More than the caches of a core hold."""
LONGEST_BURST_S, LONGEST_PAUSE_S = 0.5, 2.0
STATUS = re.compile(
    r"(?:\[\?7l)?(?P<phase>\w+) +(?P<at_s>[\d.]+) s(?P<stop>.*?) +[\d.]+ Hz .*"
    r"missed (?P<missed>\d+) +interventions (?P<acts>\d+)"
)
"""The status line of `bot deploy`; see cli/deploy_terminal.py."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


# -- load --------------------------------------------------------------------------------------------------------------


def work(seed: int, bursts: bool) -> None:
    """Copy an array without end, with pauses if `bursts`."""
    draw, source = random.Random(seed), np.ones(COPIED_BYTES // 8)
    target = np.empty_like(source)
    while True:
        until = time.monotonic() + draw.uniform(0.02, LONGEST_BURST_S)
        while time.monotonic() < until:
            target[:] = source
        if bursts:
            time.sleep(draw.uniform(0.0, LONGEST_PAUSE_S))


@contextmanager
def load(phase: str) -> Iterator[list[BaseProcess]]:
    """Run the load of a phase inside the context."""
    cores = os.cpu_count() or 1
    count = {"idle": 0, "busy": cores, "bursts": 2 * cores}[phase]
    context = multiprocessing.get_context("spawn")
    workers: list[BaseProcess] = [
        context.Process(target=work, args=(seed, phase == "bursts"), daemon=True) for seed in range(count)
    ]
    for worker in workers:
        worker.start()
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


# -- the controller ----------------------------------------------------------------------------------------------------


class Deployment:
    """One run of `bot deploy`, with its status line on a terminal."""

    def __init__(self, policy: Path, seconds: float, log: Path, under: Sequence[str]) -> None:
        self.log, self.status, self.begun_s = log, dict[str, str](), time.monotonic()
        self._terminal, its_end = pty.openpty()
        command = [*under, sys.executable, "-m", "body_transformer.cli.main", "deploy", str(policy), "--out", str(log)]
        command += ["--seconds", f"{seconds:.0f}", "--json", "--faults", "noise=1"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=its_end, start_new_session=True
        )
        os.close(its_end)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        rest = ""
        with suppress(OSError):  # the other end of the terminal is closed
            while data := os.read(self._terminal, 4096):
                lines = re.split(r"[\r\n]+", rest + data.decode(errors="replace"))
                rest = lines.pop()
                for match in filter(None, map(STATUS.search, lines)):
                    self.status = match.groupdict()

    def pids(self) -> dict[str, int]:
        """Return the process ids of the controller and of the robot."""
        return dict(zip(PROCESSES, (self.process.pid, *children(self.process.pid)), strict=False))

    def result(self) -> dict[str, Any]:
        """Return the result that the ended run printed."""
        out, _ = self.process.communicate()
        self._reader.join()
        os.close(self._terminal)
        found = json.loads(out) if out.strip() else {}
        return {"begun_s": self.begun_s, "log": str(self.log), "status": self.process.returncode, **found}


def children(parent: int) -> list[int]:
    """Return the ids of a process's children."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if int(stat(int(entry.name))[1]) == parent:
                    found.append(int(entry.name))
    return found


def stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the command, which may hold spaces: state, parent, …"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu_s(pid: int) -> float:
    """Return the processor time of a process; 0 if it has ended."""
    with suppress(OSError):
        fields = stat(pid)
        return (int(fields[11]) + int(fields[12])) * TICK_S
    return 0.0


def all_cpu_s() -> tuple[float, float]:
    """Return the processor time of all programs since the start of the computer, and the time stolen by its host."""
    user, nice, system, _, _, irq, soft, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft) * TICK_S, steal * TICK_S


def usage(pid: int) -> dict[str, float]:
    """Return resident memory, threads and open files of a process."""
    with suppress(OSError, KeyError):  # it has ended; without memory, it is a zombie
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        found = {name: value for name, _, value in (line.partition(":") for line in lines)}
        return {
            "rss_mb": int(found["VmRSS"].split()[0]) / 1e3,
            "threads": int(found["Threads"]),
            "fds": len(os.listdir(f"/proc/{pid}/fd")),
        }
    return {}


# -- the soak ----------------------------------------------------------------------------------------------------------


def soak(policy: Path, out: Path, minutes: float, phase_s: float, under: Sequence[str]) -> None:
    """Run until the time is over, and write samples.jsonl and runs.json; `under` is a command that starts another."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    end, number, runs = time.monotonic() + 60 * minutes, 0, list[dict[str, Any]]()
    current = Deployment(policy, 60 * minutes, out / "logs" / "0", under)
    with (out / "samples.jsonl").open("w") as file:
        while time.monotonic() < end:
            until = min(end, time.monotonic() + phase_s)
            with load(PHASES[number % len(PHASES)]) as workers:
                while (left := until - time.monotonic()) > 0:
                    if current.process.poll() is not None:
                        runs.append(current.result())
                        current = Deployment(policy, end - time.monotonic(), out / "logs" / str(len(runs)), under)
                    ids = [worker.pid or 0 for worker in workers]
                    sample = sampled(current, ids, min(1.0, left))
                    sample |= {"phase": PHASES[number % len(PHASES)], "run": len(runs)}
                    file.write(json.dumps(sample) + "\n")
                    file.flush()
            number += 1
    runs.append(current.result())
    atomic_write(out / "runs.json", json.dumps(runs, indent=1) + "\n")


def sampled(deployment: Deployment, workers: Sequence[int], seconds: float) -> Sample:
    """Wait, and return the usage of the processes afterwards and of the processors meanwhile."""
    pids = deployment.pids()
    ours = [*pids.values(), *workers, os.getpid()]
    begun, used, (total, stolen) = time.monotonic(), [cpu_s(pid) for pid in ours], all_cpu_s()
    time.sleep(seconds)
    own = sum(max(cpu_s(pid) - before, 0.0) for pid, before in zip(ours, used, strict=True))
    now, (total_now, stolen_now) = time.monotonic(), all_cpu_s()
    sample: Sample = {"time_s": now, "status": dict(deployment.status)}
    sample["others"] = max(total_now - total - own, 0.0) / (now - begun)
    sample["stolen"] = (stolen_now - stolen) / (now - begun)
    for name, pid in pids.items():
        sample |= {f"{name}_{key}": value for key, value in usage(pid).items()}
    return sample


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("soak.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("policy", type=Path, help="an exported policy")
    parser.add_argument("--out", type=Path, default=Path("build/soak"))
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--phase-s", type=float, default=300.0, help="seconds until the load changes")
    parser.add_argument("--under", default="", metavar="COMMAND", help="command that starts the controller")
    options = parser.parse_args(args)
    soak(options.policy, options.out, options.minutes, options.phase_s, options.under.split())
    soak_tables.write(options.out)


if __name__ == "__main__":
    main()
