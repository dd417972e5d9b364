"""Write safetensors files. Read those whose header was checked: names, sizes and offsets are exact before that."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

MAX_HEADER_BYTES = 2**24
"""Largest header; it has about 100 bytes per tensor."""
MAX_AXES = 64
ITEM_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}
"""Number types of tensors, and the bytes of one number."""
_METADATA = "__metadata__"


def write_tensors(file: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file; an error is the operating system's, with its number."""
    try:
        save_file(dict(tensors), file, metadata=None if metadata is None else dict(metadata))
    except SafetensorError as error:  # of a full disk, too
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise OSError(errno.EIO, str(error), str(file)) from None
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(file)) from None


def read_tensors(file: Path) -> tuple[dict[str, Tensor], Mapping[str, str]]:
    """Return the tensors and the metadata of a safetensors file."""
    check_header(file)
    try:
        with safe_open(file, framework="pt") as opened:
            names = opened.keys()
            return {name: opened.get_tensor(name) for name in names}, opened.metadata() or {}
    except SafetensorError as error:
        raise _damaged(file, error) from None


def check_header(file: Path) -> None:
    """Refuse a file whose tensors do not fill it exactly, by its header alone."""
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        total = file.stat().st_size
        if not 2 <= size <= total - 8:
            raise _damaged(file, f"its header has {size:,} bytes, the file {total:,}")
        if size > MAX_HEADER_BYTES:
            raise ValueError(
                f"the header of {str(file)!r} has {size:,} bytes; a safetensors file may have at most "
                f"{MAX_HEADER_BYTES:,}"
            )
        text = stream.read(size)
    try:
        header = json.loads(text)
        header.pop(_METADATA, None)
        _check_offsets([_place(name, entry) for name, entry in header.items()], total - 8 - size)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(file, error) from None


def _place(name: str, entry: Any) -> tuple[int, int]:
    """Return where a tensor begins and ends in the data; raise if its shape or type does not fit that."""
    shape, (start, end) = entry["shape"], entry["data_offsets"]
    if len(shape) > MAX_AXES or not all(type(one) is int and 0 <= one < 2**63 for one in (*shape, start, end)):
        raise ValueError(f"{name!r} must have a shape of at most {MAX_AXES} whole numbers, and two offsets")
    if entry["dtype"] not in ITEM_BYTES:
        raise ValueError(f"{name!r} has the unknown type {entry['dtype']!r}")
    if end - start != prod(shape) * ITEM_BYTES[entry["dtype"]]:
        raise ValueError(f"{name!r} has a shape that does not fit its offsets")
    return start, end


def _check_offsets(places: list[tuple[int, int]], num_bytes: int) -> None:
    """Raise unless the tensors follow each other without gap or overlap, from the first to the last byte."""
    expected = 0
    for start, end in sorted(places):
        if start != expected:
            raise ValueError("its tensors overlap, or leave gaps")
        expected = end
    if expected != num_bytes:
        raise ValueError(f"its tensors have {expected:,} bytes, and {num_bytes:,} follow the header")


def _damaged(file: Path, reason: object) -> ValueError:
    return ValueError(
        f"{str(file)!r} is not a complete safetensors file ({reason}); pickled files are never opened: "
        "if you trust one, convert it with safetensors.torch.save_file"
    )
