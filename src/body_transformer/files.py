"""Write files and folders under a temporary name and rename them when they are complete; lock files."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

if sys.platform != "win32":
    import fcntl


def atomic_write(path: Path, content: str | Callable[[Path], object]) -> Path:
    """Write a file so that a reader finds the old content or the new, never a part, even after a power failure.

    `content` is the text, or a function that writes to the path it is given.
    """
    unfinished = path.with_name(f".{uuid.uuid4().hex[:8]}.{path.name}")  # the suffix stays, because matplotlib reads it
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            unfinished.write_text(content, encoding="utf-8")
        else:
            content(unfinished)
        sync(unfinished)
        os.replace(unfinished, path)
        return path
    except OSError as error:
        raise OSError(f"cannot write {str(path)!r}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def check_writable(folder: Path, what: str) -> None:
    """Create the folder; raise an error before any work is done if `what`, such as "a report", cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(4096))  # a full disk still takes an empty file
    except FileExistsError:
        raise OSError(f"cannot write {what} to {str(folder)!r}: it is a file, not a folder") from None
    except OSError as error:
        raise OSError(f"cannot write {what} to {str(folder)!r}: {error.strerror}") from None


def replace_folder(new: Path, out: Path) -> None:
    """Rename `new` to `out`; remove an old `out` only when the new one is in its place."""
    if not out.exists() or not any(out.iterdir()):
        os.replace(new, out)
        return
    old = new.with_name(f"{new.name}.old")
    os.replace(out, old)
    try:
        os.replace(new, out)
    except BaseException:
        os.replace(old, out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk, so that a power failure cannot lose it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def try_lock(file: IO[Any] | int, shared: bool = False) -> bool:
    """Lock an open file or folder until it is closed; return False if another process holds the lock.

    On Windows and on file systems without such locks, every attempt succeeds.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass  # a file system without locks
    return True


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside `path`; after the block, sync it and rename it to `path`, replacing an older one.

    If the block raises, `path` stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _scratch(path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")) as unfinished:
        yield unfinished
        _sync_all(unfinished)
        replace_folder(unfinished, path)


@contextmanager
def new_files(folder: Path) -> Iterator[Path]:
    """Yield an empty folder inside `folder`; after the block, sync its files and move them into `folder` one by one.

    The other files of `folder` stay. The parent of `folder` need not be writable.
    """
    with _scratch(folder / f".{folder.name}.{uuid.uuid4().hex[:8]}") as unfinished:
        yield unfinished
        _sync_all(unfinished)
        for file in sorted(unfinished.iterdir()):
            os.replace(file, folder / file.name)


@contextmanager
def _scratch(path: Path) -> Iterator[Path]:
    """Yield a new folder, and remove it after the block."""
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _sync_all(folder: Path) -> None:
    for file in (*folder.iterdir(), folder):
        sync(file)
