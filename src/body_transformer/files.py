"""Write files and folders under a temporary name and rename them when they are complete; lock files."""

from __future__ import annotations

import errno
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


DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Numbers of the errors of a disk that is full, of a quota or limit that is reached, and of a broken disk."""


class AppendedFile:
    """A file that grows by whole records. After an error, which names the file, it is as it was before."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, path.open("ab", buffering=0)

    def append(self, record: bytes) -> None:
        """Write a record at the end of the file."""
        if os.fstat(self._file.fileno()).st_nlink == 0:  # otherwise the record would be lost without an error
            raise FileNotFoundError(f"cannot write {str(self._path)!r}: it has been deleted")
        size, rest = os.fstat(self._file.fileno()).st_size, record
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), size)
            raise OSError(f"cannot write {str(self._path)!r}: {error.strerror}") from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()


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


ENTRY_BYTES = 128 * 1024
"""Room for the structures of a library's own format around the arrays that are written at once."""


def reserve(folder: Path, num_bytes: int) -> None:
    """Raise an error if the disk has no room for this many bytes of arrays, twice, in a folder.

    It is called before HDF5 writes, because HDF5 ends the process with a segmentation fault on a full disk.
    """
    size = 2 * num_bytes + ENTRY_BYTES
    with tempfile.TemporaryFile(dir=folder) as probe:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(probe.fileno(), 0, size)
        else:
            probe.write(bytes(size))


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
    with _scratch(path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")) as unfinished, _named(path):
        yield unfinished
        _sync_all(unfinished)
        replace_folder(unfinished, path)


@contextmanager
def new_files(folder: Path) -> Iterator[Path]:
    """Yield an empty folder inside `folder`; after the block, sync its files and move them into `folder` one by one.

    The other files of `folder` stay. The parent of `folder` need not be writable.
    """
    with _scratch(folder / f".{folder.name}.{uuid.uuid4().hex[:8]}") as unfinished, _named(folder):
        yield unfinished
        _sync_all(unfinished)
        for file in sorted(unfinished.iterdir()):
            os.replace(file, folder / file.name)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name the final path in errors of a disk that is full or broken; they have no name, or that of a hidden file."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


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
