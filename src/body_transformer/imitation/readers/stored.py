"""Names and shapes of the terms in a file of demonstrations, before there is a layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

from ...documents import read_yaml
from ...errors import listing
from ...schema import build

Shape = tuple[int, ...]
StoredShapes = tuple[Path, dict[str, Shape], Shape]
"""Path of the demonstrations, and the shapes of one step: observation array -> shape, and the shape of the actions."""
FLAT = ""
"""Name of a flat observation, which holds all terms one after the other."""
SIDECAR = "terms.yaml"
"""In a folder of demonstrations, the file that names the terms; beside `demos.npz` it is `demos.terms.yaml`."""
OTHERS = {"reward", "terminal", "termination", "truncation", "timeout", "done", "next_obs", "is_first", "is_last"}
"""Names of arrays that are not observations, in the singular; their plurals are not observations either."""
MAX_AXES = 2
"""Largest number of axes of a term's step; an array with more is an image."""


@dataclass(frozen=True)
class StoredTerms:
    """The terms of demonstrations, in the order of their file, and the shape of one step of each."""

    reader: str
    obs: Mapping[str, Shape]
    actions: Mapping[str, Shape]
    left_out: tuple[str, ...] = ()
    """Arrays that are not read as observations."""


@dataclass(frozen=True)
class Sidecar:
    """Names and numbers of entries of the terms in a flat array, in order."""

    obs: Mapping[str, int] = field(default_factory=dict)
    actions: Mapping[str, int] = field(default_factory=dict)


def stored_terms(data: str) -> StoredTerms:
    """Read the names and shapes of a file, folder or dataset, from its first episode."""
    reader = find_reader(data)
    found: StoredShapes = import_module(f".{reader}", __package__).stored_shapes(data)
    place, obs, actions = found
    sidecar = place / SIDECAR if place.is_dir() else place.with_suffix(f".{SIDECAR}")
    named = _read_sidecar(sidecar)
    others = [name for name, shape in obs.items() if name != FLAT and not 1 <= len(shape) <= MAX_AXES]
    left_out = [name for name in obs if name in others or name.lower() in OTHERS | {f"{one}s" for one in OTHERS}]
    kept = {name: shape for name, shape in obs.items() if name not in left_out}
    if FLAT in kept:
        kept = _split(named.obs, prod(kept[FLAT]), "obs", sidecar)
    elif not kept:
        have = listing(["actions", *left_out])
        raise ValueError(
            f"{data}: there is no array of observations; have: {have}; an observation has a row of numbers per action"
        )
    acting = {"actions": actions}
    if named.actions:
        acting = _split(named.actions, prod(actions), "actions", sidecar)
    return StoredTerms(reader, kept, acting, tuple(left_out))


def find_reader(data: str) -> str:
    """Return the reader of a file, folder or dataset."""
    path = Path(data).expanduser()
    if path.suffix in (".hdf5", ".h5"):
        return "robomimic"
    if path.suffix == ".npz" or (path.is_dir() and (any(path.glob("*.npz")) or (path / "actions.npy").is_file())):
        return "npz"
    if path.is_file():
        raise ValueError(
            f"{data}: demonstrations are an .npz file, a folder of them, a folder with .npy files, a Minari dataset or "
            "a robomimic file (.hdf5)"
        )
    return "minari"


def _read_sidecar(file: Path) -> Sidecar:
    if not file.is_file():
        return Sidecar()
    return build(Sidecar, read_yaml(file), str(file))


def _split(sizes: Mapping[str, int], width: int, what: str, sidecar: Path) -> dict[str, Shape]:
    """Return the terms that a sidecar names; they must add up to the width of the array."""
    total = sum(sizes.values())
    if total != width or min(sizes.values(), default=0) < 1:
        given = f"{sidecar} names {total} of them" if sizes else f"{sidecar} does not exist"
        raise ValueError(
            f"the array {what!r} has {width} entries, and {given}: name them in order, each with its number of "
            f"entries, such as `{what}: {{joint_pos: 7, gravity: 3}}`"
        )
    return {name: (size,) for name, size in sizes.items()}


def first_shapes(arrays: Iterable[tuple[str, Any]], rows: int) -> dict[str, Shape]:
    """Return name -> shape of one step; it is empty for an array without numbers or of another number of rows."""
    return {
        name: array.shape[1:] or (1,) if array.dtype.kind in "fiub" and array.shape[:1] == (rows,) else ()
        for name, array in arrays
    }
