"""NumPy files: `obs` [S, O] or one array per term, `actions` [S, A], `episode_ends` [E] (cumulative steps).

Optional arrays of text are `clip` [E] and `split` [E]. Data is one .npz, a folder of them, or a folder with one .npy
file per array (`actions.npy`, ...). An .npz is loaded into memory; .npy files are memory-mapped and read per episode.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...array_files import ArrayArchive, map_array
from ...body.layout import Layout
from ...errors import listing
from ...files import atomic_write
from ...size_limits import check_memory
from ..episodes import EpisodeInfo, Episodes, Steps
from .files import FileStamps, naming
from .stored import FLAT, StoredShapes, first_shapes
from .terms import check_matrix, check_split, check_terms, join_terms, term_keys

Arrays = Mapping[str, npt.NDArray[Any]]
ENDS = "episode_ends"
OWN = ("actions", ENDS, "clip", "split")
"""Arrays that are not terms of the observation."""
MAX_EPISODES = 1_000_000
"""Largest number of episodes of a file."""


@dataclass(frozen=True)
class CheckedArrays:
    """The checked arrays of one .npz file or of one folder of .npy files."""

    path: Path
    arrays: Arrays
    bounds: tuple[int, ...]
    """[E + 1] first row of each episode, then the end of the last."""
    infos: tuple[EpisodeInfo, ...]


def open_episodes(data: str, layout: Layout, obs_keys: Mapping[str, str] | str | None = None) -> Episodes:
    """Open a file, or all files of a folder; `obs_keys` maps terms to arrays of other names."""
    keys = term_keys(layout, obs_keys)
    parts, num_bytes, file_bytes = [], 0, 0
    for path in _parts(Path(data).expanduser()):
        parts.append(_open(path, layout, keys))
        if path.is_file():  # the arrays of a folder stay on the disk
            num_bytes += sum(array.nbytes for array in parts[-1].arrays.values())
            file_bytes += path.stat().st_size
            check_memory(data, num_bytes, file_bytes)
    return NpzEpisodes(layout, parts, keys)


def stored_shapes(data: str) -> StoredShapes:
    """Return the shapes of the first file."""
    whole = Path(data).expanduser()
    path = _parts(whole)[0]
    with _arrays(path) as (arrays, have):
        if "actions" not in have:
            raise ValueError(f"the array 'actions' is missing; have: {listing(have)}")
        header = arrays.header if isinstance(arrays, ArrayArchive) else arrays.__getitem__
        rows, *actions = header("actions").shape
        if "obs" in have:
            return whole, {FLAT: header("obs").shape[1:]}, tuple(actions)
        found = {}
        for name in have:
            if name not in OWN:
                with naming(name):
                    found[name] = header(name)
        return whole, first_shapes(found.items(), rows), tuple(actions)


def _parts(path: Path) -> list[Path]:
    """Return the .npz files of a folder, or the file or folder of .npy files itself."""
    paths = sorted(path.glob("*.npz")) if path.is_dir() and not (path / "actions.npy").is_file() else [path]
    if not paths:
        raise FileNotFoundError(f"{path}: no .npz file and no actions.npy in this folder")
    return paths


def _open(path: Path, layout: Layout, keys: Mapping[str, str]) -> CheckedArrays:
    with _arrays(path) as (arrays, have):
        return _check(path, arrays, have, layout, keys)


@contextmanager
def _arrays(path: Path) -> Iterator[tuple[Arrays, list[str]]]:
    """Yield the arrays of a file or folder, and their names; errors name the file."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    with naming(path):
        if path.is_dir():
            arrays = {file.stem: _map(file) for file in sorted(path.glob("*.npy"))}
            yield arrays, list(arrays)
        else:
            with ArrayArchive(path) as archive:
                yield archive, archive.files


def _map(file: Path) -> npt.NDArray[Any]:
    with naming(file):
        return map_array(file)


def _check(path: Path, arrays: Arrays, have: list[str], layout: Layout, keys: Mapping[str, str]) -> CheckedArrays:
    """Load the needed arrays, and check their names, types and shapes."""
    needed = ["actions", "episode_ends", *(["obs"] if "obs" in have else keys.values())]
    missing = [name for name in needed if name not in have]
    if missing:
        hint = "; 'episode_ends' is the cumulative number of steps of the episodes" if ENDS in missing else ""
        raise ValueError(f"the arrays {listing(missing)} are missing; have: {listing(have)}{hint}")
    loaded = {}
    for name in [*needed, *(name for name in ("clip", "split") if name in have)]:
        with naming(name):
            loaded[name] = arrays[name]
    for name in needed:
        if loaded[name].dtype.kind not in "fiub":
            raise ValueError(f"{name!r} must hold numbers; it holds {loaded[name].dtype}")
    check_matrix("'actions'", loaded["actions"].shape, None, layout.action_dim)
    num_steps = len(loaded["actions"])
    if "obs" in loaded:
        check_matrix("'obs'", loaded["obs"].shape, num_steps, layout.obs_dim)
    else:
        check_terms(layout, keys, lambda key: loaded[key].shape, num_steps)
    bounds = _bounds(loaded["episode_ends"], num_steps)
    clips = _texts(loaded, "clip", len(bounds) - 1, "")
    splits = map(check_split, _texts(loaded, "split", len(bounds) - 1, "train"))
    infos = [EpisodeInfo(*one) for one in zip(np.diff(bounds).tolist(), clips, splits, strict=True)]
    return CheckedArrays(path, loaded, bounds, tuple(infos))


def _bounds(ends: npt.NDArray[Any], num_steps: int) -> tuple[int, ...]:
    if ends.ndim != 1 or not len(ends) or ends.dtype.kind not in "iu":
        raise ValueError(f"'episode_ends' must be whole numbers [E]; it is {ends.dtype} {list(ends.shape)}")
    if len(ends) > MAX_EPISODES:
        raise ValueError(f"'episode_ends' has {len(ends):,} entries; the limit is {MAX_EPISODES:,} episodes per file")
    bounds = [0, *ends.tolist()]
    if (np.diff(bounds) < 0).any() or bounds[-1] != num_steps:
        raise ValueError(f"'episode_ends' must rise to the number of actions, {num_steps}; the last is {bounds[-1]}")
    return tuple(bounds)


def _texts(arrays: Arrays, name: str, number: int, default: str) -> list[str]:
    if name not in arrays:
        return [default] * number
    array = arrays[name]
    if array.shape != (number,) or array.dtype.kind != "U":
        raise ValueError(f"{name!r} must be text [{number}], one per episode; it is {array.dtype} {list(array.shape)}")
    texts: list[str] = array.tolist()
    return texts


class NpzEpisodes(Episodes):
    """Episodes of NumPy files."""

    def __init__(self, layout: Layout, parts: list[CheckedArrays], keys: Mapping[str, str]) -> None:
        super().__init__(layout, [info for part in parts for info in part.infos])
        self._places = [(part, index) for part in parts for index in range(len(part.infos))]
        self._keys = keys
        self._mapped = {part.path: sorted(part.path.glob("*.npy")) for part in parts if part.path.is_dir()}
        self._stamps = FileStamps([file for files in self._mapped.values() for file in files])

    def read(self, index: int) -> Steps:
        part, inside = self._places[index]
        for file in self._mapped.get(part.path, ()):  # reading beyond the end of a truncated mapped file would crash
            self._stamps.check(file)
        rows = slice(part.bounds[inside], part.bounds[inside + 1])
        if "obs" in part.arrays:
            obs = part.arrays["obs"][rows][:, self.obs_ids]
        else:
            obs = join_terms(self.layout, self._keys, rows.stop - rows.start, lambda key: part.arrays[key][rows])
        return Steps(obs.astype(np.float32), part.arrays["actions"][rows].astype(np.float32))

    def origin(self, index: int) -> str:
        part, inside = self._places[index]
        return f"{part.path}: rows {part.bounds[inside]} to {part.bounds[inside + 1] - 1}"


def write_npz(path: str | os.PathLike[str], episodes: Episodes) -> None:
    """Write any episodes to one .npz file, atomically; entries of the observation without an owner become 0."""
    steps = [episodes.read(index) for index in range(len(episodes))]
    obs = np.zeros((episodes.num_steps, episodes.layout.obs_dim), np.float32)
    obs[:, episodes.obs_ids] = np.concatenate([one.obs for one in steps])
    arrays = {
        "episode_ends": np.cumsum([info.num_steps for info in episodes.infos], dtype=np.int64),
        "clip": np.array([info.clip for info in episodes.infos], dtype=np.str_),
        "split": np.array([info.split for info in episodes.infos], dtype=np.str_),
        "obs": obs,
        "actions": np.concatenate([one.actions for one in steps], dtype=np.float32),
    }
    atomic_write(Path(path), lambda file: np.savez(file, allow_pickle=False, **arrays))
