"""Items of HDF5 files of other people: nothing outside the file is read, and no array is larger than the limit.

An HDF5 file can name other files of the computer: external links, external storage and virtual datasets. All three are
refused before HDF5 opens the other file.
"""

from __future__ import annotations

from functools import cache
from math import prod
from pathlib import Path
from typing import Any, Literal

from ...errors import import_extra, listing
from ...size_limits import FLOAT_BYTES, check_memory
from .files import stamp
from .hdf5_filters import check_filters

KINDS = {"numbers": "fiub", "strings": "OS"}
"""Content of a dataset -> NumPy's letters of its types."""
_checked: set[tuple[Path, int, int]] = set()
"""Path, size and modification time of files that were checked as a whole."""
MAX_SOFT_LINKS = 16
"""Largest number of soft links on the way to an item."""


@cache
def load_h5py() -> Any:
    """Return the package h5py, without the time of an import statement."""
    return import_extra("h5py", "imitation")


def open_hdf5(path: Path) -> Any:
    """Open an HDF5 file for reading; HDF5 itself detects a truncated one."""
    h5py = import_extra("h5py", "imitation")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        return h5py.File(path, "r", locking="best-effort")  # read-only and network file systems may have no locks
    except OSError as error:
        raise ValueError(f"{path}: not a complete HDF5 file, or not readable: {error}") from error


def is_group(item: Any) -> bool:
    """Return whether an item of an HDF5 file is a group."""
    return isinstance(item, load_h5py().Group)


def item(group: Any, name: str, num_soft_links: int = 0) -> Any:
    """Return an item below a group by its path, or None; raise if a link on the way leads out of the file."""
    found = group.file if name.startswith("/") else group
    for part in filter(None, name.split("/")):
        if part == ".":
            continue
        if not is_group(found):
            return None
        links, key = found.id.links, part.encode("utf-8", "surrogateescape")
        if not links.exists(key):
            return None
        kind = links.get_info(key).type
        h5l = load_h5py().h5l
        if kind == h5l.TYPE_SOFT:
            if num_soft_links >= MAX_SOFT_LINKS:
                raise ValueError(f"{_path(found, part)} is one of over {MAX_SOFT_LINKS} soft links in a row")
            found = item(found, links.get_val(key).decode("utf-8", "surrogateescape"), num_soft_links + 1)
        elif kind == h5l.TYPE_HARD:
            found = found[part]
        else:
            raise ValueError(f"{_path(found, part)} is a link to another file, which is never followed")
    return found


def has_own_item(group: Any, name: str) -> bool:
    """Return whether a group itself holds an item, rather than a link to another place."""
    links, key = group.id.links, name.encode()
    return bool(links.exists(key)) and links.get_info(key).type == load_h5py().h5l.TYPE_HARD


def dataset(group: Any, name: str, content: Literal["numbers", "strings"] = "numbers") -> Any:
    """Return a dataset; raise if it is missing, of another type, never written, too large or stored elsewhere."""
    found, where = item(group, name), _path(group, name)
    if found is None:
        raise ValueError(f"{where} is missing; {group.name} has: {listing(group)}")
    if not isinstance(found, load_h5py().Dataset):
        raise ValueError(f"{where} must be a dataset; it is a {type(found).__name__.lower()}")
    if found.dtype.kind not in KINDS[content]:
        raise ValueError(f"{where} must hold {content}; it holds {found.dtype}")
    check_storage(found, where)
    if found.size and not found.id.get_storage_size():
        raise ValueError(f"{where} was never written: the recording stopped early")
    return found


def attribute(group: Any, name: str, default: Any = None) -> Any:
    """Return an attribute that is one number or text, or the default; raise for an array.

    The texts of an array may all be the same bytes of the file, and fill the memory.
    """
    if name not in group.attrs:
        return default
    if (shape := group.attrs.get_id(name).shape) is None or prod(shape) != 1:
        raise ValueError(f"the attribute {name!r} of {group.name} must be one value; its shape is {shape}")
    return group.attrs[name]


def _check_attributes(found: Any) -> None:
    """Refuse an attribute with several texts, for the same reason; numbers cannot share their bytes."""
    for name in found.attrs:
        stored = found.attrs.get_id(name)
        if stored.dtype.kind == "O" and prod(stored.shape or ()) != 1:
            raise ValueError(f"the attribute {name!r} of {found.name} must be one text; its shape is {stored.shape}")


def check_storage(found: Any, where: str) -> None:
    """Refuse a dataset with numbers in another file, and one that would take too much memory."""
    h5py = load_h5py()
    properties = found.id.get_create_plist()
    layout = properties.get_layout()
    if layout == h5py.h5d.VIRTUAL or (layout == h5py.h5d.CONTIGUOUS and properties.get_external_count()):
        raise ValueError(f"{where} is stored in another file, which is never opened")
    file_bytes = found.file.id.get_filesize()
    item_bytes = max(found.id.get_type().get_size(), FLOAT_BYTES)
    check_memory(where, prod(found.shape or (0,)) * item_bytes, file_bytes)
    if layout == h5py.h5d.CHUNKED:
        chunk_bytes = prod(properties.get_chunk()) * item_bytes
        check_memory(f"a chunk of {where}", chunk_bytes, file_bytes)
        check_filters(found, where, chunk_bytes)


def check_whole_file(file: Any) -> None:
    """Check every link, attribute and dataset of an open file that other code reads; errors name the file."""
    h5py = load_h5py()
    path = Path(file.filename)
    checked = (path, *stamp(path))
    if checked in _checked:
        return

    def wrong_link(name: bytes, link: Any) -> str | None:
        if link.type in (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT):
            return None
        return f"/{name.decode(errors='replace')} is a link to another file, which is never followed"

    def wrong_item(name: str, found: Any) -> str | None:
        try:
            _check_attributes(found)
            if isinstance(found, h5py.Dataset):
                check_storage(found, f"/{name}")
        except ValueError as error:  # h5py's loop in C cannot raise it
            return str(error)
        return None

    if wrong := file.id.links.visit(wrong_link, info=True) or wrong_item("", file) or file.visititems(wrong_item):
        raise ValueError(f"{path}: {wrong}")
    _checked.add(checked)


def _path(group: Any, name: str) -> str:
    return f"{group.name.rstrip('/')}/{name}"
