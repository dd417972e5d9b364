"""Run folders: what was asked for (`experiment.yaml`) and how it went (`metrics.jsonl`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from . import __version__

if sys.platform != "win32":
    import fcntl

DESCRIPTION, METRICS, EVALUATION = "experiment.yaml", "metrics.jsonl", "evaluation.json"
LOCK = ".at_work"


class Run:
    """runs/<experiment>/<variant>/seed<k>/, or wherever the user wants it."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    @classmethod
    def create(cls, folder: str | os.PathLike[str], description: Mapping[str, Any]) -> Run:
        """A new folder; one that holds a run already is refused."""
        run = cls(folder)
        if run.exists:
            raise ValueError(f"{str(run.folder)!r} holds a run already: go on with --resume, or name another --out")
        run.folder.mkdir(parents=True, exist_ok=True)
        content = {**description, "package_version": __version__, "git_commit": git_commit()}
        write_aside(run.folder / DESCRIPTION, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
        return run

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Run:
        run = cls(folder)
        if not run.exists:
            raise FileNotFoundError(f"{str(run.folder)!r} is not a run: {DESCRIPTION} is not there")
        return run

    @property
    def exists(self) -> bool:
        return (self.folder / DESCRIPTION).is_file()

    def description(self) -> dict[str, Any]:
        file = self.folder / DESCRIPTION
        try:
            content = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ValueError(f"{str(file)!r} is not YAML: {' '.join(str(error).split())}") from None
        if not isinstance(content, dict):
            raise ValueError(f"{str(file)!r} must be a mapping of keys to values")
        return content

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While it is entered, no other process may enter it: two that write to one run would spoil it."""
        if sys.platform == "win32":  # has no such locks
            yield
            return
        with (self.folder / LOCK).open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                raise ValueError(
                    f"another process ({file.read().strip() or 'unknown'}) is at work in {str(self.folder)!r}"
                ) from None
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield

    @property
    def is_at_work(self) -> bool:
        """Whether a process is at work in it."""
        if sys.platform == "win32" or not (self.folder / LOCK).is_file():
            return False
        with (self.folder / LOCK).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The lines that are whole: a killed run may leave half a line at the end."""
        file = self.folder / METRICS
        if not file.is_file():
            return
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    yield json.loads(line)
                except json.JSONDecodeError:
                    return

    def forget_after(self, step: int) -> None:
        """Drops lines later than this step: the run goes on from there."""
        kept = [json.dumps(line) + "\n" for line in self.metrics() if line["step"] <= step]
        if (self.folder / METRICS).is_file():
            write_aside(self.folder / METRICS, "".join(kept))


def write_aside(file: Path, text: str) -> None:
    """A reader sees the old file or the new one."""
    aside = file.with_name(f".{file.name}.{uuid.uuid4().hex[:8]}")
    try:
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, file)
    finally:
        aside.unlink(missing_ok=True)


def git_commit() -> str | None:
    """Of the source tree that the package runs from; none for an installed package."""
    source = Path(__file__).resolve().parent
    if not (source.parents[1] / ".git").exists():
        return None
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=source, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None
