"""Plain NumPy files: `obs` [S, O] or one array a term, `actions` [S, A], `episode_ends` [E] (cumulative steps).

One .npz or a folder of them; `clip` [E] and `split` [E] (text) may be there too. Arrays that are not compressed
(`np.savez`) are read an episode at a time; compressed ones are unpacked when first needed, and kept.
"""

from __future__ import annotations

import os
import struct
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ...body.layout import Layout
from ...errors import listing
from ..episodes import EpisodeInfo, Episodes, Floats, Steps
from .files import naming, open_npz
from .terms import check_flat, check_split, check_terms, side_by_side, term_keys

LOCAL_HEADER = 30
"""Bytes of a zip entry's own header before its name."""


@dataclass(frozen=True)
class Stored:
    """An array inside a .npz."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int | None
    """The first byte of its numbers in the file; None: it must be unpacked."""

    def rows(self, first: int, last: int) -> npt.NDArray[Any]:
        """[last - first, …], from disk."""
        if self.start is None:
            return self.whole[first:last]
        width = int(np.prod(self.shape[1:]))
        start = self.start + first * width * self.dtype.itemsize
        with naming(self.path):
            flat = np.fromfile(self.path, self.dtype, (last - first) * width, offset=start)
            return flat.reshape(last - first, *self.shape[1:])

    @cached_property
    def whole(self) -> npt.NDArray[Any]:
        with naming(self.path), open_npz(self.path) as archive:
            array: npt.NDArray[Any] = archive[self.name]
            return array


@dataclass(frozen=True)
class File:
    """A .npz that was checked."""

    arrays: Mapping[str, Stored]
    bounds: tuple[int, ...]
    """[E + 1] where episodes begin, and where the last ends."""
    infos: tuple[EpisodeInfo, ...]


def open_episodes(data: str, layout: Layout, obs_keys: Mapping[str, str] | str | None = None) -> Episodes:
    """The episodes of one file or of all files of a folder; `obs_keys` maps terms to arrays of other names."""
    keys = term_keys(layout, obs_keys)
    path = Path(data).expanduser()
    paths = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    if not paths:
        raise FileNotFoundError(f"{path}: there is no .npz file in this folder")
    return NpzEpisodes(layout, [_check(one, layout, keys) for one in paths], keys)


def _check(path: Path, layout: Layout, keys: Mapping[str, str]) -> File:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file or folder")
    with naming(path):
        arrays = stored_arrays(path)
        wanted = ["actions", "episode_ends", *(["obs"] if "obs" in arrays else keys.values())]
        missing = [name for name in wanted if name not in arrays]
        if missing:
            raise ValueError(f"the arrays {listing(missing)} are missing; have: {listing(arrays)}")
        for name in wanted:
            if arrays[name].dtype.kind not in "fiub":
                raise ValueError(f"{name!r} must hold numbers; it holds {arrays[name].dtype}")
        check_flat("'actions'", arrays["actions"].shape, None, layout.action_dim)
        num_steps = arrays["actions"].shape[0]
        if "obs" in arrays:
            check_flat("'obs'", arrays["obs"].shape, num_steps, layout.obs_dim)
        else:
            check_terms(layout, keys, lambda key: arrays[key].shape, num_steps)
        bounds = _bounds(arrays["episode_ends"], num_steps)
        clips, splits = (
            _texts(arrays, name, len(bounds) - 1, usual) for name, usual in (("clip", ""), ("split", "train"))
        )
        lengths = np.diff(bounds).tolist()
        infos = [EpisodeInfo(*one) for one in zip(lengths, clips, map(check_split, splits), strict=True)]
    return File(arrays, bounds, tuple(infos))


def stored_arrays(path: Path) -> dict[str, Stored]:
    """Name -> array, from the headers alone."""
    found = {}
    with zipfile.ZipFile(path) as archive, path.open("rb") as raw:
        for entry in archive.infolist():
            with archive.open(entry) as file:
                shape, fortran, dtype = _npy_header(file)
                begin = file.tell()
            if dtype.hasobject:
                raise ValueError(f"{entry.filename} holds Python objects, which are never loaded")
            size = begin + int(np.prod(shape)) * dtype.itemsize
            if entry.file_size != size:
                raise ValueError(f"{entry.filename} must have {size} bytes; it has {entry.file_size}")
            start = None
            if entry.compress_type == zipfile.ZIP_STORED and not fortran:
                raw.seek(entry.header_offset)
                start = (
                    entry.header_offset + LOCAL_HEADER + sum(struct.unpack("<26x2H", raw.read(LOCAL_HEADER))) + begin
                )
            name = entry.filename.removesuffix(".npy")
            found[name] = Stored(path, name, shape, dtype, start)
    return found


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"arrays of .npy version {version} are not read; have: 1.0, 2.0")
    shape, fortran, dtype = readers[version](file)
    return shape, fortran, dtype


def _bounds(ends: Stored, num_steps: int) -> tuple[int, ...]:
    values = ends.whole
    if values.ndim != 1 or not len(values) or values.dtype.kind not in "iu":
        raise ValueError(f"'episode_ends' must be whole numbers [E]; it is {values.dtype} {list(values.shape)}")
    bounds = [0, *values.tolist()]
    if (np.diff(bounds) < 0).any() or bounds[-1] != num_steps:
        raise ValueError(f"'episode_ends' must rise to the number of actions, {num_steps}; the last is {bounds[-1]}")
    return tuple(bounds)


def _texts(arrays: Mapping[str, Stored], name: str, number: int, usual: str) -> list[str]:
    if name not in arrays:
        return [usual] * number
    if arrays[name].shape != (number,) or arrays[name].dtype.kind != "U":
        given = f"{arrays[name].dtype} {list(arrays[name].shape)}"
        raise ValueError(f"{name!r} must be text [{number}], one an episode; it is {given}")
    texts: list[str] = arrays[name].whole.tolist()
    return texts


class NpzEpisodes(Episodes):
    """Episodes, read when asked for."""

    def __init__(self, layout: Layout, files: list[File], keys: Mapping[str, str]) -> None:
        super().__init__(layout, [info for file in files for info in file.infos])
        self._places = [(file, index) for file in files for index in range(len(file.infos))]
        self._keys = keys

    def read(self, index: int) -> Steps:
        file, inside = self._places[index]
        first, last = file.bounds[inside], file.bounds[inside + 1]
        if "obs" in file.arrays:
            obs = file.arrays["obs"].rows(first, last)[:, self.obs_ids]
        else:
            obs = side_by_side(self.layout, self._keys, last - first, lambda key: file.arrays[key].rows(first, last))
        return Steps(obs.astype(np.float32), file.arrays["actions"].rows(first, last).astype(np.float32))

    def origin(self, index: int) -> str:
        file, inside = self._places[index]
        return f"{file.arrays['actions'].path}: rows {file.bounds[inside]} to {file.bounds[inside + 1] - 1}"


def write_npz(path: str | os.PathLike[str], episodes: Episodes) -> None:
    """Writes any episodes as one file, aside, then moves it into place; entries that nobody reads become 0."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}"
    infos, num_steps = episodes.infos, episodes.num_steps
    small = {
        "episode_ends": np.cumsum([info.num_steps for info in infos], dtype=np.int64),
        "clip": np.array([info.clip for info in infos], dtype=np.str_),
        "split": np.array([info.split for info in infos], dtype=np.str_),
    }
    try:
        with zipfile.ZipFile(aside, "w", zipfile.ZIP_STORED) as archive:
            for name, array in small.items():
                with archive.open(f"{name}.npy", "w") as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
            _write_rows(archive, "obs", (num_steps, episodes.layout.obs_dim), _every(episodes, _full_obs))
            _write_rows(archive, "actions", (num_steps, episodes.layout.action_dim), _every(episodes, _actions))
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def _every(episodes: Episodes, part: Callable[[Episodes, Steps], Floats]) -> Iterator[Floats]:
    return (part(episodes, episodes.read(index)) for index in range(len(episodes)))


def _full_obs(episodes: Episodes, steps: Steps) -> Floats:
    obs = np.zeros((len(steps.obs), episodes.layout.obs_dim), np.float32)
    obs[:, episodes.obs_ids] = steps.obs
    return obs


def _actions(episodes: Episodes, steps: Steps) -> Floats:
    return np.ascontiguousarray(steps.actions, dtype=np.float32)


def _write_rows(archive: zipfile.ZipFile, name: str, shape: tuple[int, int], parts: Iterator[Floats]) -> None:
    """A float32 array, a few rows at a time."""
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        for part in parts:
            file.write(part.astype("<f4").tobytes())
