"""Open and check data files; every error names its file."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from zipfile import BadZipFile

DAMAGE = (
    ValueError,
    TypeError,
    KeyError,
    OSError,
    RuntimeError,
    EOFError,
    BadZipFile,
    zlib.error,
    TokenError,
    SyntaxError,
)
"""Exceptions of h5py, zipfile and NumPy on a damaged file, and of our own checks on a wrong one."""


@contextmanager
def naming(source: str | os.PathLike[str]) -> Iterator[None]:
    """Turn every error from reading a file, or a part of it, into a ValueError that begins with its name `source`."""
    try:
        yield
    except FileNotFoundError:  # the message already contains the path
        raise
    except DAMAGE as error:
        message = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
        raise ValueError(message if message.startswith(str(source)) else f"{source}: {message}") from error


def stamp(path: Path) -> tuple[int, int]:
    """Return the size and the modification time of a file."""
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


class FileStamps:
    """Sizes and modification times of files at the time of their check."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._stamps = {path: stamp(path) for path in set(paths)}

    def check(self, path: Path) -> None:
        """Raise if the file is gone or has changed since."""
        if not path.is_file():
            raise FileNotFoundError(f"{path}: the file no longer exists")
        if stamp(path) != self._stamps[path]:
            raise ValueError(f"{path}: the file has changed since it was checked")
