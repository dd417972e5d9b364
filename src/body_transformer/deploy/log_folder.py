"""Where a log goes: a folder that is there, and can be written to, before the robot moves."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from .log import holds_log

DEFAULT = Path("deployments")


@contextmanager
def claimed(out: Path | None, experiment: str) -> Iterator[Path]:
    """`out`, or a new folder of deployments/; an error if nothing can be written there, or a log is there already.

    A folder that was made here and in which nothing was written is removed again.
    """
    made = out is None or not out.exists()
    folder = _new(f"{experiment}-{time.strftime('%Y%m%d-%H%M%S')}") if out is None else _named(out)
    try:
        with _own(folder):
            yield folder
    finally:
        if made:
            with suppress(OSError):  # it is not empty
                folder.rmdir()


def _new(name: str) -> Path:
    """Nobody else's: two deployments may begin in the same second."""
    with _said_clearly(DEFAULT):
        DEFAULT.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            folder = DEFAULT / (name if number == 1 else f"{name}-{number}")
            with suppress(FileExistsError):
                folder.mkdir()
                return folder
    raise AssertionError("there is always another number")


def _named(out: Path) -> Path:
    with _said_clearly(out):
        out.mkdir(parents=True, exist_ok=True)
    if holds_log(out):
        raise FileExistsError(f"{str(out)!r} holds the log of an earlier deployment; give --out another folder")
    return out


@contextmanager
def _own(folder: Path) -> Iterator[None]:
    """The folder can be written to, and nobody else's log goes there as long as this one may."""
    with _said_clearly(folder):
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(4096))
        place = os.open(folder, os.O_RDONLY)
    try:
        _lock(place, folder)
        yield
    finally:
        os.close(place)


def _lock(place: int, folder: Path) -> None:
    """Until it is closed, or the process ends."""
    import fcntl

    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FileExistsError(f"another deployment that still runs writes its log to {str(folder)!r}") from None
    except OSError:
        pass  # a file system without locks


@contextmanager
def _said_clearly(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(f"no log can be written to {str(folder)!r}: {error.strerror or error}") from None
