"""Filters of HDF5 chunks, such as compression: a chunk unpacks to its own numbers and to nothing larger.

HDF5 unpacks a chunk as far as its bytes reach, whatever the size of its numbers. So a chunk of kilobytes could fill the
memory, and one that was compressed twice even more so.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

from ...errors import listing
from ...size_limits import check_memory, max_read_bytes, size_text
from .files import stamp

GZIP, SHUFFLE, CHECKSUM, LZF = 1, 2, 3, 32000
FILTERS = {GZIP: "gzip", SHUFFLE: "shuffle", CHECKSUM: "fletcher32", LZF: "lzf"}
"""Number of a filter in HDF5 -> name in h5py, for the filters that are read."""
EXPANSION = 1032
"""Most bytes that a compressed byte can become, with gzip; with lzf it is fewer."""
CHECKSUM_BYTES = 4
"""Number of bytes that fletcher32 adds to a chunk."""
PIECE_BYTES = 2**20
_checked: set[tuple[Path, str, int, int]] = set()
"""File, dataset, size and modification time of the file, for datasets whose chunks were unpacked."""


def check_filters(found: Any, where: str, chunk_bytes: int) -> None:
    """Refuse a dataset with other filters than FILTERS, or with a chunk that unpacks to more than its numbers."""
    properties = found.id.get_create_plist()
    numbers = [properties.get_filter(k)[0] for k in range(properties.get_nfilters())]
    if others := [number for number in numbers if number not in FILTERS]:
        have = listing(FILTERS.values())
        raise ValueError(f"{where} has the HDF5 filter {others[0]}; the filters that are read are {have}")
    if len(set(numbers)) < len(numbers) or set(numbers) >= {GZIP, LZF}:
        raise ValueError(f"{where} is compressed twice, or has a filter twice")
    if GZIP in numbers and not {CHECKSUM}.issuperset(numbers[numbers.index(GZIP) + 1 :]):
        raise ValueError(f"{where} is not compressed last, but before another filter")
    if not {GZIP, LZF} & set(numbers):
        return
    file = Path(found.file.filename)
    size, modified_ns = stamp(file)
    if found.id.get_storage_size() * EXPANSION <= max_read_bytes(size):
        return
    checked = (file, found.name, size, modified_ns)
    if checked in _checked:
        return
    stored = _stored_chunks(found)
    if GZIP in numbers:
        for offset in stored:
            _check_gzip(found.id.read_direct_chunk(offset)[1], chunk_bytes + CHECKSUM_BYTES, where)
    else:
        check_memory(f"unpacking a chunk of {where}", max(stored.values(), default=0) * EXPANSION, size)
    _checked.add(checked)


def _stored_chunks(found: Any) -> dict[tuple[int, ...], int]:
    """Return the place of each chunk in the dataset, and its size in the file."""
    stored: dict[tuple[int, ...], int] = {}

    def add(chunk: Any) -> None:
        stored[chunk.chunk_offset] = chunk.size

    found.id.chunk_iter(add)
    return stored


def _check_gzip(data: bytes, limit: int, where: str) -> None:
    """Unpack a chunk piece by piece, to learn its size without the memory; HDF5 itself reports damaged bytes."""
    unpacker, total = zlib.decompressobj(), 0
    try:
        while data and not unpacker.eof:
            total += len(unpacker.decompress(data, PIECE_BYTES))
            if total > limit:
                raise ValueError(f"a chunk of {where} unpacks to more than its numbers, {size_text(limit)}")
            data = unpacker.unconsumed_tail
    except zlib.error:  # a chunk may leave a filter out, and is then not compressed
        return
