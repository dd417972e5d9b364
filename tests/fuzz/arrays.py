"""Mutations of NumPy archives and HDF5 files, drawn from a random generator."""

from __future__ import annotations

import ast
import io
import pickle
import struct
import zipfile
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import h5py
import numpy as np

from .content import CANARY, NAMES, mutate_bytes

KINDS = ("<f4", ">f8", "<f2", "<i8", "<u1", "?", "<c8", "<U5", "S3", "<M8[s]", "<m8[s]", "V4", "<i4,<f8", "O")
FILL = (0, 1, -1, 10**7, 2**31, np.nan, np.inf, -np.inf, 1e300, 1e-45)
SHAPES = ((0,), (1,), (-1,), (0, 0), (1, 1), (3, 0, 5), (2**40,), (2**31, 2**31), (2**63,), (1,) * 40, (), (10**7, 100))


class Runs:
    """An object whose unpickling opens a file outside the input's folder."""

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (f"{CANARY}/raw.bin",)


PICKLE = pickle.dumps(Runs())


def other_array(chance: Random, array: Any) -> Any:
    """Return an array with another type, shape or with other numbers."""
    way = chance.randrange(8)
    try:
        if way == 0:
            return array.astype(chance.choice(KINDS[:-1]))
        if way == 1:
            return array.reshape(
                chance.choice(((-1,), (1, -1), (-1, 1), (*array.shape, 1), (1, *array.shape), array.shape[::-1]))
            )
        if way == 2:
            return array[: chance.randrange(len(array) + 1)]
        if way == 3:
            return np.concatenate([array, array[: chance.choice((1, 2, 5))]])
        if way == 4:
            return array[..., :-1]
        if way == 5:
            return np.asarray(chance.choice((0, 1.5, "text", [[]], [], True, b"x")))
        changed = array.copy()
        changed.flat[chance.randrange(max(array.size, 1))] = chance.choice(FILL)
        return changed if way == 6 else np.sort(changed, axis=0)[::-1]
    except (ValueError, TypeError, OverflowError, IndexError):
        return np.zeros((2, 2))


# -- .npy and .npz -----------------------------------------------------------------------------------------------------


def npy(array: Any) -> bytes:
    """Return the content of an .npy file."""
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asanyarray(array), allow_pickle=True)
    return out.getvalue()


def mutate_npy(chance: Random, content: bytes) -> bytes:
    """Return an .npy file with another array, another header, or with changed bytes."""
    way = chance.randrange(6)
    if way == 0:
        return mutate_bytes(chance, content)
    if way < 3:
        return _other_header(chance, content)
    if way == 3 and chance.random() < 0.2:
        return npy(np.array([1])).replace(b"'<i8'", b"'|O' ")[:-8] + PICKLE
    return npy(other_array(chance, np.load(io.BytesIO(content), allow_pickle=False)))


def _other_header(chance: Random, content: bytes) -> bytes:
    end = content.index(b"\n") + 1
    header = ast.literal_eval(content[10:end].decode())
    way = chance.randrange(5)
    if way == 0:
        header["descr"] = chance.choice(
            (*KINDS, "|b1000000000", "<f99", [("a", "<f4")] * 2, [("a", "<f4"), ("b", "O")], 3, None)
        )
    elif way == 1:
        header["shape"] = chance.choice((*SHAPES, [1], "x", (1.5,), (True,), None))
    elif way == 2:
        header["fortran_order"] = chance.choice((True, 1, "x", None))
    elif way == 3:
        header[chance.choice(("shape", "extra", "descr"))] = chance.choice(((2,), "a", 1))
    else:
        header.pop(chance.choice(list(header)))
    text = (
        repr(header).encode()
        if chance.random() < 0.9
        else chance.choice((b"(" * 300, b"[" * 90 + b"]" * 90, b"os.system", b"1"))
    )
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return content[:8] + struct.pack("<H", len(text) % 2**16) + text + content[end:]


@cache
def _zeros(num_bytes: int) -> bytes:
    """Return an archive with one array of zeros, which is a thousand times smaller than the array."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("actions.npy", "w", force_zip64=True) as file,
    ):
        head = npy(np.zeros((0, 2), np.float32)).replace(b"(0, 2)", f"({num_bytes // 8}, 2)".encode())
        file.write(head[: head.index(b"\n") + 1])
        for _ in range(num_bytes // 2**20):
            file.write(bytes(2**20))  # in parts, so that this process stays small
    return out.getvalue()


def mutate_npz(chance: Random, content: bytes) -> bytes:
    """Return an archive with other arrays, members or bytes."""
    way = chance.random()
    if way < 0.15:
        return mutate_bytes(chance, content)
    if way < 0.16 or len(content) > 2**20:
        return _zeros(5 * 2**28)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    for _ in range(chance.choice((1, 1, 2))):
        name = chance.choice(list(members) or ["x.npy"])
        way = chance.random()
        if way < 0.1:
            members.pop(name, None)
        elif way < 0.2:
            members[chance.choice((*NAMES, name[:-4], f"{CANARY}/x.npy"))[:200]] = members.pop(name, b"")
        elif way < 0.25:
            members[name] = chance.choice((b"", PICKLE, b"\x93NUMPY", b"text"))
        else:
            members[name] = mutate_npy(chance, members.get(name) or npy(np.zeros(3)))
    out = io.BytesIO()
    method = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, member in members.items():
            try:
                archive.writestr(name or "_", member)
            except (ValueError, UnicodeError):
                archive.writestr("odd", member)
    packed = out.getvalue()
    return _other_sizes(chance, packed) if chance.random() < 0.1 else packed


def _other_sizes(chance: Random, content: bytes) -> bytes:
    """Return an archive whose directory states another size, method or flag for a member."""
    data = bytearray(content)
    at = content.find(b"PK\x01\x02")
    if at >= 0:
        place, size = chance.choice(((8, 2), (10, 2), (20, 4), (24, 4), (42, 4), (28, 2)))
        data[at + place : at + place + size] = chance.choice(
            (b"\xff" * size, b"\0" * size, b"\x01" + b"\0" * (size - 1))
        )
    return bytes(data)


# -- HDF5 --------------------------------------------------------------------------------------------------------------


def hdf5(write: Callable[[h5py.File], object]) -> bytes:
    """Return the content of an HDF5 file."""
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        write(file)
    return out.getvalue()


def mutate_hdf5(chance: Random, content: bytes) -> bytes:
    """Return a file with other data sets, groups, attributes, links or bytes."""
    if chance.random() < 0.15:
        return mutate_bytes(chance, content)
    out = io.BytesIO(content)
    with h5py.File(out, "r+") as file:
        for _ in range(chance.choice((1, 1, 2))):
            names: list[str] = []
            file.visit(names.append)
            if names:
                _change_item(chance, file, chance.choice(names))
    return out.getvalue()


def _change_item(chance: Random, file: h5py.File, name: str) -> None:
    item, way = file[name], chance.randrange(10)
    try:
        if way == 0:
            del file[name]
        elif way == 1:
            _change_attribute(chance, item)
        elif way == 2:
            new = chance.choice(NAMES).replace("\0", "")[:200] or "x"
            file.move(name, f"{name.rpartition('/')[0]}/{new}")
        elif way == 3:
            del file[name]
            file[name] = chance.choice((
                h5py.SoftLink("/nowhere"), h5py.SoftLink(f"/{name}"), h5py.SoftLink("/"), h5py.ExternalLink("", "/"),
                h5py.ExternalLink(f"{CANARY}/data.hdf5", "/actions"), h5py.ExternalLink("/etc/passwd", "/x"),
            ))  # fmt: skip
        elif isinstance(item, h5py.Dataset):
            array = item[()]
            del file[name]
            _write_dataset(chance, file, name, np.asarray(array))
        else:
            del file[name]
            file[name] = chance.choice((1, "text", np.zeros((3, 2), np.float32)))
    except (KeyError, ValueError, TypeError, OSError, RuntimeError, OverflowError):
        file.attrs["changed"] = 1


def _write_dataset(chance: Random, file: h5py.File, name: str, array: Any) -> None:
    way = chance.randrange(10)
    if way < 4:
        file[name] = other_array(chance, array)
    elif way == 4:  # stored in another file
        raw = chance.choice((f"{CANARY}/raw.bin", "/etc/passwd", "raw.bin"))
        file.create_dataset(name, array.shape, array.dtype, external=[(raw, 0, array.nbytes)])
    elif way == 5:
        layout = h5py.VirtualLayout(array.shape, array.dtype)
        layout[...] = h5py.VirtualSource(f"{CANARY}/data.hdf5", "actions", shape=array.shape)
        file.create_virtual_dataset(name, layout)
    elif way == 6:  # never written, and larger than any file
        shape = chance.choice(((10**12,), (10**9, array.shape[-1] if array.ndim else 1), (2**62,), array.shape))
        file.create_dataset(name, shape, array.dtype, chunks=tuple(min(side, 64) for side in shape) or None)
    elif way == 7:
        file.create_dataset(
            name, (2**27, *array.shape[1:2]), array.dtype, chunks=True, compression="gzip", fillvalue=0
        )[:1] = 0
    elif way == 8:
        kinds = (h5py.string_dtype(), h5py.vlen_dtype(np.float32), h5py.ref_dtype, h5py.enum_dtype({"a": 1}, "i4"))
        file.create_dataset(
            name, array.shape[:1] or (1,), chance.choice((*kinds, np.dtype("<i4,<f8"), np.dtype((np.float32, (2,)))))
        )
    else:
        file.create_dataset(name, data=array, chunks=True, compression=chance.choice(("gzip", "lzf")), shuffle=True)


def _change_attribute(chance: Random, item: Any) -> None:
    names = list(item.attrs) or ["split"]
    value = chance.choice(
        (*NAMES[:30], 0, -1, 2**63 - 1, np.nan, np.zeros(3), np.zeros((0,)), np.float32(1), b"x", h5py.Empty("f"))
    )
    item.attrs[chance.choice(names)] = value.replace("\0", "")[:1000] if isinstance(value, str) else value
