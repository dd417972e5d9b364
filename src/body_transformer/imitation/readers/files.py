"""Open and check data files; every error names its file."""

from __future__ import annotations

import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile, is_zipfile

import numpy as np
import numpy.typing as npt
from numpy.lib.npyio import NpzFile

from ...errors import install, listing

DAMAGE = (ValueError, KeyError, OSError, RuntimeError, EOFError, BadZipFile, zlib.error, TokenError, SyntaxError)
"""Exceptions of h5py, zipfile and NumPy on a damaged file, and of our own checks on a wrong one."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn every error of reading `path` into a ValueError that begins with the path."""
    try:
        yield
    except FileNotFoundError:  # its message has the path already
        raise
    except DAMAGE as error:
        message = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
        raise ValueError(message if message.startswith(str(path)) else f"{path}: {message}") from error


class OpenFiles:
    """A cache of the `max_open` most recently used files; one thread at a time may use them."""

    def __init__(self, opener: Callable[[Path], Any], max_open: int = 16) -> None:
        self._opener = opener
        self._max_open = max_open
        self._files: OrderedDict[Path, Any] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._files)

    @contextmanager
    def use(self, path: Path) -> Iterator[Any]:
        """Yield the open file; errors inside name it."""
        with self._lock, naming(path):
            if path not in self._files:
                while len(self._files) >= self._max_open:
                    self._files.popitem(last=False)[1].close()
                self._files[path] = self._opener(path)
            self._files.move_to_end(path)
            yield self._files[path]


class FileStamps:
    """Sizes and modification times of files at the time of their check."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._stamps = {path: self._stamp(path) for path in set(paths)}

    def check(self, path: Path) -> None:
        """Raise if the file is gone or has changed since."""
        if not path.is_file():
            raise FileNotFoundError(f"{path}: the file no longer exists")
        if self._stamp(path) != self._stamps[path]:
            raise ValueError(f"{path}: the file has changed since it was checked")

    @staticmethod
    def _stamp(path: Path) -> tuple[int, int]:
        stat = path.stat()
        return stat.st_size, stat.st_mtime_ns


def open_npz(path: str | os.PathLike[str]) -> NpzFile:
    """Open an .npz archive, which reads each array on access; arrays of Python objects are never loaded."""
    if not is_zipfile(path):  # NumPy would suspect a pickle and explain how to load one
        raise ValueError("not an npz file (a zip archive), or truncated")
    archive: NpzFile = np.load(path, allow_pickle=False)
    return archive


# -- HDF5 --------------------------------------------------------------------------------------------------------------


def load_h5py() -> Any:
    """Import h5py, which comes with the extra `imitation`."""
    try:
        return import_module("h5py")
    except ModuleNotFoundError:
        message = f"HDF5 files are read with h5py, which is not installed: {install('imitation')}"
        raise ValueError(message) from None


def open_hdf5(path: Path) -> Any:
    """Open an HDF5 file for reading; HDF5 itself detects a truncated one."""
    h5py = load_h5py()
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        return h5py.File(path, "r", locking="best-effort")  # read-only and network file systems may have no locks
    except OSError as error:
        raise ValueError(f"{path}: not a complete HDF5 file, or not readable: {error}") from error


def is_group(item: Any) -> bool:
    """Return whether an item of an HDF5 file is a group."""
    return isinstance(item, load_h5py().Group)


def dataset(group: Any, name: str) -> Any:
    """Return a dataset of numbers; raise if it is missing, not numeric or was never written."""
    found = group.get(name)
    where = f"{group.name.rstrip('/')}/{name}"
    if found is None:
        raise ValueError(f"{where} is missing; {group.name} has: {listing(group)}")
    if not isinstance(found, load_h5py().Dataset):
        raise ValueError(f"{where} must be a dataset; it is a {type(found).__name__.lower()}")
    if found.dtype.kind not in "fiub":
        raise ValueError(f"{where} must hold numbers; it holds {found.dtype}")
    if found.size and not found.id.get_storage_size():
        raise ValueError(f"{where} was never written: its writer stopped early")
    return found


def whole_number(file: Any, name: str) -> int:
    """Return the value of a dataset that holds one non-negative integer."""
    value = dataset(file, name)[()]
    if np.size(value) != 1 or np.asarray(value).dtype.kind not in "iu" or np.asarray(value).item() < 0:
        raise ValueError(f"{name} must be one whole number, 0 or more; got {value!r}")
    return int(np.asarray(value).item())


def strings(values: npt.NDArray[Any]) -> list[str]:
    """Return names as str, whether HDF5 stored bytes or str."""
    return [value.decode("utf-8") if isinstance(value, bytes) else str(value) for value in values.reshape(-1).tolist()]


def hdf5_files(data: str) -> Sequence[Path]:
    """Return the HDF5 files of a folder sorted by name, or the given file."""
    path = Path(data).expanduser()
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: no such file or folder")
    found = sorted(file for file in path.iterdir() if file.suffix in (".hdf5", ".h5"))
    if not found:
        raise FileNotFoundError(f"{path}: no .hdf5 file in this folder")
    return found
