"""HDF5 files: opened, and what is in them checked."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import install, listing


def load_h5py() -> Any:
    """The package, which only the extra `imitation` brings."""
    try:
        return import_module("h5py")
    except ModuleNotFoundError:
        message = f"HDF5 files are read with h5py, which is not installed: {install('imitation')}"
        raise ValueError(message) from None


def open_file(path: Path) -> Any:
    """The file, for reading; HDF5 itself notices one that was cut off."""
    h5py = load_h5py()
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    try:
        return h5py.File(path, "r", locking="best-effort")  # read-only and network file systems may have no locks
    except OSError as error:
        raise ValueError(f"{path}: not a whole HDF5 file, or not ours to read: {error}") from error


def is_group(item: Any) -> bool:
    return isinstance(item, load_h5py().Group)


def dataset(group: Any, name: str) -> Any:
    """A data set of numbers that was really written."""
    found = group.get(name)
    where = f"{group.name.rstrip('/')}/{name}"
    if found is None:
        raise ValueError(f"{where} is missing; {group.name} has: {listing(group)}")
    if not isinstance(found, load_h5py().Dataset):
        raise ValueError(f"{where} must be a data set; it is a {type(found).__name__.lower()}")
    if found.dtype.kind not in "fiub":
        raise ValueError(f"{where} must hold numbers; it holds {found.dtype}")
    if found.size and not found.id.get_storage_size():
        raise ValueError(f"{where} was never written: its writer stopped early")
    return found


def whole_number(file: Any, name: str) -> int:
    """A data set that holds a single one."""
    value = dataset(file, name)[()]
    if np.size(value) != 1 or np.asarray(value).dtype.kind not in "iu" or np.asarray(value).item() < 0:
        raise ValueError(f"{name} must be one whole number from 0 up; got {value!r}")
    return int(np.asarray(value).item())


def strings(values: npt.NDArray[Any]) -> list[str]:
    """Names, however HDF5 stored them."""
    return [value.decode("utf-8") if isinstance(value, bytes) else str(value) for value in values.reshape(-1).tolist()]


def hdf5_files(data: str) -> Sequence[Path]:
    """The HDF5 files of a folder, by name, or the one file that was given."""
    path = Path(data).expanduser()
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: there is no such folder or file")
    found = sorted(file for file in path.iterdir() if file.suffix in (".hdf5", ".h5"))
    if not found:
        raise FileNotFoundError(f"{path}: there is no .hdf5 file in this folder")
    return found
