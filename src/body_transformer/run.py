"""Run folders: the description of a run (`experiment.yaml`) and its metrics (`metrics.jsonl`)."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

from . import __version__, pretrained
from .documents import read_yaml
from .errors import listing
from .files import atomic_write, try_lock
from .policy_folder import RUN_DESCRIPTION, PolicyFolder, read_description
from .size_limits import check_memory

DESCRIPTION, METRICS, EVALUATION = RUN_DESCRIPTION, "metrics.jsonl", "evaluation.json"
PATHS = "paths.json"
"""Paths of walking robots in the final evaluation, from above."""
LOCK = ".at_work"
LEFT_BEHIND = (".*", "*.log", "*log.txt", "slurm-*", "nohup.out")
"""Files of a run that ended before it wrote its description: the lock, partial files, logs."""


class Run:
    """A run's folder, by default runs/<experiment>/<variant>/seed<k>/."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    @classmethod
    def create(cls, folder: str | os.PathLike[str], description: Mapping[str, Any]) -> Run:
        """Create a run in a new or empty folder."""
        run = cls(folder)
        run.check_free()
        run.folder.mkdir(parents=True, exist_ok=True)
        run._describe({**description, "package_version": __version__, "git_commit": git_commit()})
        return run

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Run:
        """Open an existing run."""
        run = cls(folder)
        if not run.exists:
            raise FileNotFoundError(f"{str(run.folder)!r} is not a run folder: {DESCRIPTION} is missing")
        return run

    @property
    def exists(self) -> bool:
        return (self.folder / DESCRIPTION).is_file()

    @property
    def is_evaluated(self) -> bool:
        """Whether the final evaluation, which completes a run, is written."""
        return (self.folder / EVALUATION).is_file()

    def check_free(self) -> None:
        """Raise an error if the folder holds a run or any other files."""
        name = str(self.folder)
        if self.exists:
            raise ValueError(f"{name!r} already holds a run: continue it with --resume {name}, or give another --out")
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{name!r} is a file, but a run is a folder: give another --out")
        there = sorted(entry.name for entry in self.folder.iterdir()) if self.folder.is_dir() else []
        foreign = [entry for entry in there if not any(fnmatch(entry, pattern) for pattern in LEFT_BEHIND)]
        if foreign:
            raise ValueError(
                f"{name!r} is not a run folder, and it is not empty: give another --out, or empty it; "
                f"it holds {listing(foreign)}"
            )

    def check_there(self) -> None:
        """Raise an error if the run was deleted; writing would make a folder without its description."""
        if not self.exists:
            raise FileNotFoundError(f"the run {str(self.folder)!r} has been deleted: {DESCRIPTION} is missing")

    def add(self, facts: Mapping[str, Any]) -> None:
        """Add facts to the description that are known only after the start."""
        self._describe({**self.description(), **facts})

    def _describe(self, content: Mapping[str, Any]) -> None:
        atomic_write(self.folder / DESCRIPTION, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))

    def description(self) -> dict[str, Any]:
        """Read experiment.yaml."""
        return read_yaml(self.folder / DESCRIPTION)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Lock the run inside the context: two processes that write to one run would corrupt it."""
        path = self.folder / LOCK
        with path.open("a+b", buffering=0) as file:
            if not try_lock(file):
                file.seek(0)
                other = file.read().decode(errors="replace").strip() or "unknown"
                raise ValueError(f"another process ({other}) is working on {str(self.folder)!r}")
            file.truncate(0)
            try:
                file.write(f"{os.getpid()}\n".encode())
            except OSError as error:
                raise OSError(f"cannot write {str(path)!r}: {error.strerror}") from None
            yield

    @property
    def is_at_work(self) -> bool:
        """Whether a process holds the lock."""
        if not (self.folder / LOCK).is_file():
            return False
        with (self.folder / LOCK).open() as file:
            return not try_lock(file, shared=True)

    def metrics(self) -> list[dict[str, Any]]:
        """Return the complete logged lines; a killed run may leave a part of a line at the end."""
        return [line for line in self.read_metrics() if line is not None]

    def last_metrics(self, num_bytes: int = 30_000) -> list[dict[str, Any]]:
        """Return the complete lines in the last `num_bytes`, newest first."""
        return [line for line in reversed(self.read_metrics(num_bytes)) if line is not None]

    def read_metrics(self, num_bytes: int | None = None) -> list[dict[str, Any] | None]:
        """Return the logged lines, or those in the last `num_bytes`; None for a line that cannot be read."""
        file = self.folder / METRICS
        if not file.is_file():
            return []
        if num_bytes is None:
            check_memory(repr(str(file)), file.stat().st_size)
        with file.open("rb") as stream:
            if num_bytes is not None:
                stream.seek(max(0, file.stat().st_size - num_bytes))
            return [_logged(line) for line in stream.read().splitlines() if line.strip()]

    def forget_after(self, step: int) -> None:
        """Remove the logged lines after `step`, the step from which the run continues."""
        kept = [json.dumps(line) + "\n" for line in self.metrics() if line["step"] <= step]
        if (self.folder / METRICS).is_file():
            atomic_write(self.folder / METRICS, "".join(kept))


def _logged(line: bytes) -> dict[str, Any] | None:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = values.get("step") if isinstance(values, dict) else None
    return values if type(step) is int and abs(step) < 2**63 else None


def experiment_of(policy: PolicyFolder) -> str | None:
    """Return the name or file of the experiment that a policy was trained for; None if its folder does not name one.

    A run that was started from a robot's file and demonstrations holds its experiment in its description.
    """
    if policy.pretrained is not None:
        return pretrained.task(policy.pretrained)
    if policy.run is None:
        contract = read_description(policy.path).get("contract")
        return contract.get("experiment") if isinstance(contract, dict) else None
    found = Run.open(policy.run).description()
    if "name" not in found:
        raise ValueError(f"{str(policy.run)!r} does not name its experiment: {DESCRIPTION} has no 'name'")
    return str(policy.run / DESCRIPTION) if "robot" in found else str(found["name"])


DIRTY = "-dirty"
"""Suffix of the commit if the source tree has uncommitted changes."""


def git_commit() -> str | None:
    """Return the commit of the source tree, with the suffix DIRTY after changes; None for an installed package."""
    source = Path(__file__).resolve().parent
    if not (source.parents[1] / ".git").exists():
        return None
    found, changed = (
        subprocess.run(["git", *words], cwd=source, capture_output=True, text=True, check=False).stdout.strip()
        for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no", "--", "."])
    )
    return (f"{found}{DIRTY}" if changed else found) or None


def without_place(command: str) -> str:
    """Return a command without this machine's folders: no `--out DIR`, and RUN in place of a resumed folder."""
    words = [word for word in shlex.split(command) if not word.startswith("--out=")]
    words = ["--resume=RUN" if word.startswith("--resume=") else word for word in words]
    if "--resume" in words[:-1]:
        words[words.index("--resume") + 1] = "RUN"
    if "--out" in words:
        at = words.index("--out")
        del words[at : at + 2]
    return shlex.join(words)
