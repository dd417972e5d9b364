"""Limits on files of other people, so that a small file cannot exhaust the machine."""

from __future__ import annotations

import math
import os
from pathlib import Path

VARIABLE = "BOT_MAX_READ_GIB"
"""Environment variable: data in GiB that one file may put into memory, however small the file is."""
DEFAULT_GIB = 0.5
EXPANSION = 4
"""A large file may always unpack to this many times its size."""
FLOAT_BYTES = 4
"""Numbers of fewer bytes become single precision in memory."""
MAX_YAML_BYTES = 2**20
MAX_LIST_BYTES = 2**24
MAX_JSON_BYTES = 2**24
MAX_DEPTH = 100
"""Largest number of mappings and lists inside each other in YAML and JSON."""


def max_read_bytes(file_bytes: int = 0) -> int:
    """Return the number of bytes that the arrays of a file of this size may take in memory at once."""
    text = os.environ.get(VARIABLE, "")
    try:
        gib = float(text) if text else DEFAULT_GIB
    except ValueError:
        gib = math.nan
    if not (math.isfinite(gib) and gib > 0):
        raise ValueError(f"{VARIABLE} must be a number of GiB above 0; got {text!r}")
    return max(int(gib * 2**30), EXPANSION * file_bytes)


def check_memory(what: str, num_bytes: int, file_bytes: int = 0) -> None:
    """Raise an error if `what`, of a file of `file_bytes` bytes, takes more memory than the limit."""
    limit = max_read_bytes(file_bytes)
    if num_bytes > limit:
        needed = -(-num_bytes // 2**30) if num_bytes < 2**50 else "GIB"
        raise ValueError(
            f"{what} would take {size_text(num_bytes)} of memory; the limit is {size_text(limit)}. "
            f"If you trust the file, raise it with the environment variable {VARIABLE}={needed}"
        )


def read_at_most(file: Path, limit: int, what: str) -> bytes:
    """Return a file's bytes; raise an error if it is larger than `limit`. `what` is the noun, such as "a YAML file"."""
    if file.exists() and not file.is_file():  # to open a named pipe waits for its writer
        raise ValueError(f"{str(file)!r} is not a regular file")
    with file.open("rb") as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        size = max(file.stat().st_size, len(content))
        raise ValueError(f"{str(file)!r} has {size:,} bytes; {what} may have at most {limit:,}")
    return content


def size_text(num_bytes: int) -> str:
    """Return `8.7 GiB`, or the exact number if it is below a MiB; a number of any size is allowed."""
    if num_bytes < 2**20:
        return f"{num_bytes:,} bytes"
    for unit, size in (("MiB", 2**20), ("GiB", 2**30)):
        if num_bytes < 1000 * size:
            return f"{num_bytes / size:.3g} {unit}"
    return f"{num_bytes // 2**30:,} GiB" if num_bytes < 2**100 else "over 2**100 bytes"
