"""MoCapAct: a folder of HDF5 files, one a clip, with the rollouts of the clip's snippets (Wagener et al. 2022).

Such a file stores each array in one piece, uncompressed, so that its place in the file is all that reading needs:
rows are read by block into a small buffer and the used columns are copied out, which is quicker than HDF5 itself and
leaves other threads free. A file that was repacked (compressed, in chunks, another number type) is read by h5py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from ...body.layout import Layout
from ...errors import listing, unknown
from ..clip_lists import SNIPPET, read_splits
from ..episodes import EpisodeInfo, Episodes, Floats, Steps
from .files import OpenFiles, naming
from .hdf5 import dataset, hdf5_files, is_group, load_h5py, open_file, whole_number
from .terms import check_flat, column_runs

ACTIONS = {"sampled": "actions", "mean": "mean_actions"}
"""Which action is learned -> its data set: the executed one, with the expert's noise, or the expert's mean."""
OBS = "observations/proprioceptive"
BLOCK_BYTES = 2**19
"""Rows read at a time: few enough to stay in the processor's cache until their columns are copied."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an episode lies."""

    path: Path
    group: str
    obs_start: int | None
    """Byte in the file; None: h5py must read it."""
    actions_start: int | None


def open_episodes(
    data: str,
    layout: Layout,
    actions: str = "sampled",
    train_clips: str | None = None,
    validation_clips: str | None = None,
    allow_missing: bool = False,
) -> Episodes:
    """The rollouts in a folder that did not end early.

    `train_clips` and `validation_clips` are text files, a name a line; with either, clips in neither are left
    out, and a clip without a file is an error unless `allow_missing`. Without them, every clip is for training.
    """
    if actions not in ACTIONS:
        raise ValueError(unknown("kind of actions", actions, ACTIONS))
    splits = read_splits(train_clips, validation_clips)
    places: list[Place] = []
    infos: list[EpisodeInfo] = []
    seen: set[str] = set()
    for path in hdf5_files(data):
        with naming(path), open_file(path) as file:
            for place, info in _episodes(file, path, layout, ACTIONS[actions], splits):
                places.append(place)
                infos.append(info)
                seen.add(info.clip)
    _check_clips(data, splits, seen, allow_missing)
    return MocapactEpisodes(layout, infos, places, ACTIONS[actions])


def _check_clips(data: str, splits: Mapping[str, str] | None, seen: set[str], allow_missing: bool) -> None:
    if not seen:
        raise ValueError(f"{data}: none of these files has a whole rollout of a clip that is asked for")
    missing = [clip for clip in splits or {} if clip not in seen]
    if missing and not allow_missing:
        raise ValueError(
            f"{data}: {len(missing)} of {len(splits or {})} clips in the lists have no whole rollout here: "
            f"{listing(missing)}; allow_missing goes on without them"
        )


def _episodes(
    file: Any, path: Path, layout: Layout, actions: str, splits: Mapping[str, str] | None
) -> Iterator[tuple[Place, EpisodeInfo]]:
    """What a file has, checked; only what describes the data is read."""
    num_rollouts = whole_number(file, "n_start_rollouts") + whole_number(file, "n_rsi_rollouts")
    _check_observables(file, layout)
    snippets = [(name, match["clip"]) for name in file if (match := SNIPPET.fullmatch(name)) and is_group(file[name])]
    if not snippets:
        raise ValueError(f"there is no snippet (a group named clip-start-end); have: {listing(file)}")
    # with a block in front of the HDF5 part, or another driver, bytes are not where HDF5 counts them
    file_bytes = path.stat().st_size if file.driver == "sec2" and file.userblock_size == 0 else None
    obs_dim, action_dim = layout.obs_dim, layout.action_dim
    for snippet, clip in snippets:
        if splits is not None and clip not in splits:
            continue
        split = "train" if splits is None else splits[clip]
        ended_early = dataset(file, f"{snippet}/early_termination")
        if ended_early.shape != (num_rollouts,):
            raise ValueError(
                f"{snippet}/early_termination must have n_start_rollouts + n_rsi_rollouts = {num_rollouts} entries; "
                f"its shape is {list(ended_early.shape)}"
            )
        for rollout in np.flatnonzero(~ended_early[()].astype(bool)).tolist():
            group = f"{snippet}/{rollout}"
            acted, actions_start = _look(file, f"{group}/{actions}", file_bytes)
            seen, obs_start = _look(file, f"{group}/{OBS}", file_bytes)
            check_flat(f"{group}/{actions}", acted, None, action_dim)
            check_flat(f"{group}/{OBS} (one row more than actions)", seen, acted[0] + 1, obs_dim)
            yield Place(path, group, obs_start, actions_start), EpisodeInfo(acted[0], clip, split)


def _check_observables(file: Any, layout: Layout) -> None:
    """The used terms lie where the layout says."""
    for term in layout.obs:
        if term.kind == "unused":
            continue
        where = layout.obs_slices[term.name]
        found = dataset(file, f"observable_indices/walker/{term.name}")[()].reshape(-1)
        if not np.array_equal(found, np.arange(where.start, where.stop)):
            given = f"{len(found)} entries from {found[0]} on" if len(found) else "no entries"
            raise ValueError(
                f"observable walker/{term.name} differs from the layout: the file has {given}, "
                f"the layout {term.size} entries from {where.start} on"
            )


def _look(file: Any, name: str, file_bytes: int | None) -> tuple[tuple[int, ...], int | None]:
    """An array's shape and, where it lies in the file just as in memory, its first byte."""
    try:
        array = load_h5py().h5d.open(file.id, name.encode())  # a fraction of the time that file[name] takes
    except KeyError:
        return dataset(file, name).shape, None  # which says what is wrong
    start = array.get_offset() if file_bytes is not None and array.dtype == np.dtype("<f4") else None
    if start is None or file_bytes is None:
        return dataset(file, name).shape, None
    shape: tuple[int, ...] = array.shape
    if start + 4 * int(np.prod(shape)) > file_bytes:
        raise ValueError(f"{name} ends after the file's end: the file was cut off")
    return shape, int(start)


class MocapactEpisodes(Episodes):
    """Rollouts, read when asked for."""

    def __init__(self, layout: Layout, infos: list[EpisodeInfo], places: list[Place], actions: str) -> None:
        super().__init__(layout, infos)
        self._places = places
        self._actions = actions
        self._runs = column_runs(self.obs_ids)
        stats = {path: _stamp(path) for path in {place.path for place in places}}
        self._plain = OpenFiles(partial(_open_unchanged, stats))
        self._hdf5 = OpenFiles(open_file)
        rows = max(1, BLOCK_BYTES // (4 * layout.obs_dim))
        self._block = np.empty((rows, layout.obs_dim), np.float32)

    def read(self, index: int) -> Steps:
        place, num_steps = self._places[index], self.infos[index].num_steps
        obs = np.empty((num_steps, len(self.obs_ids)), np.float32)
        actions = np.empty((num_steps, self.layout.action_dim), np.float32)
        if place.obs_start is None or place.actions_start is None:
            with self._hdf5.use(place.path) as file:
                self._copy_used(file[place.group][OBS][:num_steps], obs)
                file[place.group][self._actions].read_direct(actions)
            return Steps(obs, actions)
        with self._plain.use(place.path) as file:  # its lock also guards the block
            for row in range(0, num_steps, len(self._block)):
                block = self._block[: num_steps - row]
                _read(file, block, place.obs_start + row * self.layout.obs_dim * 4)
                self._copy_used(block, obs[row : row + len(block)])
            _read(file, actions, place.actions_start)
        return Steps(obs, actions)

    def origin(self, index: int) -> str:
        return f"{self._places[index].path}: {self._places[index].group}"

    def _copy_used(self, rows: Floats, out: Floats) -> None:
        for whole, chosen in self._runs:
            out[:, chosen] = rows[:, whole]


def _stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def _open_unchanged(stamps: Mapping[Path, tuple[int, int]], path: Path) -> FileIO:
    """The plain file, if it is still what was checked."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the file is gone")
    if _stamp(path) != stamps[path]:
        raise ValueError("the file has changed since it was checked")
    return FileIO(path)


def _read(file: FileIO, out: Floats, start: int) -> None:
    """Fills the array with the bytes from `start` on."""
    if not out.size:
        return
    todo = out.reshape(-1).data.cast("B")
    file.seek(start)
    while len(todo):
        done = file.readinto(todo)
        if not done:
            raise ValueError(f"the file ends at byte {file.tell()}: it was cut off")
        todo = todo[done:]
