"""Run several trainings as processes, some in parallel; skip finished runs and resume stopped ones."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ..console import SafeConsole
from ..files import try_lock
from ..run import Run

POLL_S = 0.5
LOG, STARTED = "log.txt", "started"
"""Files beside a run's folder: the output of its process, and the lock that the process holds."""
NOTED = ("loss", "return")
"""The progress bar shows the first of these metrics that the newest logged line has."""


@dataclass(frozen=True)
class Planned:
    """A run that a study or demo needs."""

    folder: Path
    args: tuple[str, ...]
    """Arguments of `bot train`, except --out."""
    label: str

    @property
    def is_finished(self) -> bool:
        return Run(self.folder).is_evaluated

    @property
    def state(self) -> str:
        """State of the run: `finished`, `begun` or `missing`."""
        return "finished" if self.is_finished else "begun" if Run(self.folder).exists else "missing"

    def check(self) -> None:
        """Raise an error if the folder holds a run with other arguments: its results would be shown as this run's."""
        run = Run(self.folder)
        if not run.exists:
            return
        given = shlex.split(str(run.description().get("command", "")))[2:]  # bot train …
        if given[: len(self.args)] != list(self.args) or given[len(self.args) : len(self.args) + 1] != ["--out"]:
            raise ValueError(
                f"{str(self.folder)!r} holds a run with other arguments: {shlex.join(given)}; expected: "
                f"{shlex.join(self.args)}. Give another --out, or remove that folder"
            )

    @property
    def command(self) -> list[str]:
        """The command that starts or resumes the run."""
        bot = [sys.executable, "-m", "body_transformer.cli.main", "train"]
        if Run(self.folder).exists:
            return [*bot, "--resume", str(self.folder), "--quiet"]
        return [*bot, *self.args, "--out", str(self.folder), "--quiet"]


def run_all(
    planned: Sequence[Planned], num_jobs: int, console: Console | None = None, keep_going: bool = False
) -> None:
    """Run the unfinished runs, `num_jobs` at a time.

    The first failure stops the others and is raised with the end of its output. With `keep_going` the others continue,
    and all failures are raised at the end. A run on which another process works is awaited, not started again: the
    command that started it may have been killed.
    """
    for job in planned:
        job.check()
    waiting = [job for job in planned if not job.is_finished]
    threads = str(max(1, (os.cpu_count() or 1) // num_jobs))
    running: dict[Planned, subprocess.Popen[bytes] | None] = {}  # None: a process of another command
    failures: list[str] = []
    with _bars(console) as bars:
        tasks = {job: bars.add_task(job.label, total=1.0, note="waiting") for job in waiting}
        try:
            while waiting or running:
                while waiting and len(running) < num_jobs:
                    job = waiting.pop(0)
                    running[job] = None if _is_busy(job) else _start(job, threads)
                time.sleep(POLL_S)
                for job, process in list(running.items()):
                    _show(bars, tasks[job], job)
                    if _is_busy(job) if process is None else process.poll() is None:
                        continue
                    del running[job]
                    if process is None and not job.is_finished:
                        waiting.insert(0, job)  # the other process has stopped
                        continue
                    failure = _failure(job, process.returncode if process else 0)
                    if failure and not keep_going:
                        raise ValueError(failure)
                    failures += [failure] if failure else []
                    bars.update(tasks[job], completed=1.0, note="failed" if failure else "done")
        finally:
            _stop([process for process in running.values() if process])
    if failures:
        raise ValueError("; ".join(failures))


def _start(job: Planned, threads: str) -> subprocess.Popen[bytes]:
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    with _file_beside(job, LOG).open("ab") as out, _file_beside(job, STARTED).open("ab") as lock:
        try_lock(lock)  # the process inherits the lock and holds it until it ends, even if this process is killed
        return subprocess.Popen(
            job.command,
            stdout=out,
            stderr=out,
            env={**os.environ, "OMP_NUM_THREADS": threads},
            start_new_session=True,
            pass_fds=[lock.fileno()],
        )


def _is_busy(job: Planned) -> bool:
    """Return whether a process works on the run, or has been started for it and still holds the start lock."""
    if Run(job.folder).is_at_work:
        return True
    file = _file_beside(job, STARTED)
    if not file.is_file():
        return False
    with file.open("ab") as lock:
        return not try_lock(lock)


def _file_beside(job: Planned, name: str) -> Path:
    return job.folder.with_name(f"{job.folder.name}.{name}")


def _failure(job: Planned, status: int) -> str:
    """Return the end of a failed run's output, or nothing if the run finished."""
    if status == 0 and job.is_finished:
        return ""
    log = _file_beside(job, LOG)
    lines = log.read_text(errors="replace").strip().splitlines()[-5:]
    return f"the run {job.label!r} ended with status {status}: {' | '.join(lines)} (full output: {log})"


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.send_signal(signal.SIGTERM)  # each writes a checkpoint
    for process in processes:
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


def _show(bars: Progress, task: TaskID, job: Planned) -> None:
    run = Run(job.folder)
    if not run.exists:
        return
    total = run.description().get("num_steps")
    for line in run.last_metrics():
        for name in NOTED:
            if total and f"train/{name}" in line:
                note = f"{name} {line[f'train/{name}']:.4g}" if line["step"] < total else "evaluating"
                bars.update(task, completed=0.97 * line["step"] / total, note=note)
                return


def _bars(console: Console | None) -> Progress:
    return Progress(
        TextColumn("{task.description:<24}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[note]:<16}"),
        TimeElapsedColumn(),
        console=console or SafeConsole(stderr=True),
    )
