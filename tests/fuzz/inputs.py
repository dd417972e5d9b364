"""Inputs: folders of files, changed by the mutation that fits each file's format."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from .arrays import mutate_hdf5, mutate_npy, mutate_npz
from .binary import mutate_onnx, mutate_safetensors, mutate_xml
from .content import mutate_bytes
from .plain_data import mutate_json, mutate_json_lines, mutate_yaml

Files = dict[str, bytes | None]
"""Path inside the folder -> content; None stands for a named pipe, of which a read never ends."""
Mutation = Callable[[Random, bytes], bytes]
MUTATIONS: Mapping[str, Mutation] = {
    ".json": mutate_json,
    ".jsonl": mutate_json_lines,
    ".yaml": mutate_yaml,
    ".npz": mutate_npz,
    ".npy": mutate_npy,
    ".hdf5": mutate_hdf5,
    ".safetensors": mutate_safetensors,
    ".onnx": mutate_onnx,
    ".xml": mutate_xml,
    ".urdf": mutate_xml,
}


@dataclass(frozen=True)
class Reader:
    """A reader of the package, with valid inputs."""

    originals: Callable[[Path], None]
    """Function that writes valid inputs, each into a folder of its own below the given one."""
    read: Callable[[Path], object] | None = None
    """Function that reads a folder; it may raise ValueError and OSError only."""
    command: Callable[[Path], list[str]] | None = None
    """Arguments of `bot`, instead of `read`."""
    seal: Callable[[Random, Files], None] = lambda chance, files: None
    """Function that makes the digests of a changed input valid again, so that readers go on beyond them."""
    only: tuple[str, ...] = ()
    """Ends of the names of the files that change; by default all do."""
    cost: int = 1
    """The quick form has fewer inputs by this factor."""
    shape: Callable[[Random, Files], bool] = field(default=lambda chance, files: False)
    """Mutation of several files at once; returns whether there was one."""


def stored(folder: Path) -> list[Files]:
    """Return the valid inputs that lie below a folder."""
    return [
        {str(file.relative_to(one)): file.read_bytes() for file in sorted(one.rglob("*")) if file.is_file()}
        for one in sorted(folder.iterdir())
    ]


def mutated(reader: Reader, originals: list[Files], chance: Random) -> Files:
    """Return a changed input."""
    files = dict(chance.choice(originals))
    if not reader.shape(chance, files):
        for _ in range(chance.choice((1, 1, 1, 2))):
            names = sorted(name for name in files if not reader.only or name.endswith(reader.only))
            if names:
                _change(chance, files, chance.choice(names))
    if chance.random() < 0.85:
        reader.seal(chance, files)
    return files


def _change(chance: Random, files: Files, name: str) -> None:
    content, way = files[name], chance.random()
    if way < 0.01 or content is None:
        del files[name]
    elif way < 0.02:
        files[name] = chance.choice((b"", b"\0" * 100, None, files[chance.choice(sorted(files))]))
    elif way < 0.025:
        del files[name]
        files[f"{name}/{name}"] = content  # a folder in the file's place
    else:
        try:
            files[name] = MUTATIONS.get(Path(name).suffix, mutate_bytes)(chance, content)
        except Exception:  # a library refuses to write what an earlier change of the same input made
            files[name] = mutate_bytes(chance, content)


def write(files: Files, folder: Path) -> None:
    """Write an input into an empty folder, which replaces an older one."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            os.mkfifo(file)
        else:
            file.write_bytes(content)
