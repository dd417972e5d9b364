"""Read .npz and .npy files whose headers were checked: no array is larger than its file or the limit on memory."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from .size_limits import FLOAT_BYTES, check_memory, size_text

MAX_HEADER_BYTES = 10_000
"""NumPy's own limit for the header of an array."""
MAX_ARRAYS = 100_000
"""Largest number of arrays in an .npz file."""
_NO_LITERAL = (ValueError, RecursionError, MemoryError, SyntaxError, TypeError, TokenError)
"""Errors of a wrong header, which NumPy evaluates as a Python literal."""
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}


@dataclass(frozen=True)
class ArrayHeader:
    """Type and shape of a stored array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    """Bytes before the first number."""

    @property
    def num_bytes(self) -> int:
        """Size of the numbers in the file."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def memory_bytes(self) -> int:
        """Size of the numbers in memory, where smaller ones become single precision."""
        return prod(self.shape) * max(self.dtype.itemsize, FLOAT_BYTES)


def read_header(stream: IO[bytes], num_bytes: int) -> ArrayHeader:
    """Read the header of an array in NumPy's format; raise unless its numbers fill the rest of `num_bytes` exactly."""
    fixed = stream.read(8)
    if fixed[:6] != b"\x93NUMPY" or len(fixed) < 8 or fixed[6] not in (1, 2, 3):
        raise ValueError("not an array in NumPy's format")
    width = 2 if fixed[6] == 1 else 4
    length = stream.read(width)
    size = int.from_bytes(length, "little")
    if size > MAX_HEADER_BYTES:
        raise ValueError(f"the header has {size:,} bytes; the limit is {MAX_HEADER_BYTES:,}")
    text = BytesIO(length + stream.read(size))
    read: Any = np.lib.format.read_array_header_1_0 if fixed[6] == 1 else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = read(text)
    except _NO_LITERAL as error:
        raise ValueError(f"the header cannot be read: {error or type(error).__name__}") from None
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False: they hold Python objects")
    if not all(0 <= one < 2**63 for one in shape):
        raise ValueError("the header has a negative size, or one beyond 64 bits")
    header = ArrayHeader(dtype, tuple(int(one) for one in shape), 8 + width + size)
    if header.start + header.num_bytes != num_bytes:
        raise ValueError(
            f"the header describes {dtype} {list(shape)}, {size_text(header.num_bytes)}, "
            f"and {size_text(max(num_bytes - header.start, 0))} follow it"
        )
    return header


class ArrayArchive(Mapping[str, npt.NDArray[Any]]):
    """The arrays of an .npz file, each checked and read on access; together they may not exceed the limit on memory."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(f"{os.fspath(path)}: no such file")
        if not zipfile.is_zipfile(path):
            raise ValueError("not an npz file (a zip archive), or truncated")
        self._zip = zipfile.ZipFile(path)
        self._members = {one.filename.removesuffix(".npy"): one for one in self._zip.infolist()}
        if len(self._members) > MAX_ARRAYS:
            self.close()
            raise ValueError(f"it has {len(self._members):,} arrays; the limit is {MAX_ARRAYS:,}")
        self._read: dict[str, int] = {}

    @property
    def files(self) -> list[str]:
        """Names of the arrays."""
        return list(self._members)

    def header(self, name: str) -> ArrayHeader:
        """Return the type and shape of an array, without reading its numbers."""
        with self._open(name) as (_, header):
            return header

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        with self._open(name) as (stream, header):
            total = sum(size for other, size in self._read.items() if other != name) + header.memory_bytes
            check_memory(f"reading {name!r}, with the arrays before it,", total, self.path.stat().st_size)
            self._read[name] = header.memory_bytes
            stream.seek(0)
            array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
            return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __enter__(self) -> ArrayArchive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    @contextmanager
    def _open(self, name: str) -> Iterator[tuple[Any, ArrayHeader]]:
        member = self._members[name]
        if member.compress_type not in _METHODS or member.flag_bits & 1:
            raise ValueError(f"{name!r} is encrypted, or compressed in another way than NumPy does")
        with self._zip.open(member) as stream:
            yield stream, read_header(stream, member.file_size)


def map_array(file: Path) -> npt.NDArray[Any]:
    """Map an .npy file into memory, after a check that it holds the whole array."""
    if not file.is_file():  # to open a named pipe waits for its writer
        raise ValueError("not a regular file")
    with file.open("rb") as stream:
        read_header(stream, file.stat().st_size)
    array: npt.NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    return array
