"""MoCapAct: a folder with one HDF5 file per clip, which holds rollouts of the clip's snippets (Wagener et al. 2022).

These files store each array contiguously and uncompressed, so it can be read at its offset in the file. That is twice
as fast as HDF5 itself and does not block other threads. Repacked files (compressed, chunked, another number type) are
read by h5py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ...body.layout import Layout
from ...errors import listing, unknown
from ..episodes import EpisodeInfo, Episodes, Steps
from ..tasks.mocap.snippets import SNIPPET, read_splits
from .files import FileStamps, naming
from .hdf5 import GroupEpisodes
from .hdf5_items import dataset, has_own_item, is_group, item, load_h5py, open_hdf5
from .terms import check_matrix

ACTIONS = {"sampled": "actions", "mean": "mean_actions"}
"""Kind of actions -> dataset: executed actions, with the expert's noise, or the expert's mean actions."""
OBS_GROUP = "observations"
OBS = f"{OBS_GROUP}/proprioceptive"
Offsets = tuple[int, int]
"""Places of an episode's observations and actions in their file, in bytes."""


def open_episodes(
    data: str,
    layout: Layout,
    actions: str = "sampled",
    train_clips: str | None = None,
    validation_clips: str | None = None,
    allow_missing: bool = False,
) -> Episodes:
    """Open all complete rollouts in a folder, that is, those that did not terminate early.

    `train_clips` and `validation_clips` are text files with one name per line. If either is given, unlisted clips are
    left out, and a listed clip without rollouts is an error unless `allow_missing`. Otherwise all clips are for
    training.
    """
    if actions not in ACTIONS:
        raise ValueError(unknown("kind of actions", actions, ACTIONS))
    splits = read_splits(train_clips, validation_clips)
    places: list[tuple[Path, str]] = []
    infos: list[EpisodeInfo] = []
    offsets: list[Offsets | None] = []
    for path in _files(data):
        with naming(path), open_hdf5(path) as file:
            for group, info, start in _rollouts(file, layout, ACTIONS[actions], splits):
                places.append((path, group))
                infos.append(info)
                offsets.append(start)
    _check_clips(data, splits, {info.clip for info in infos}, allow_missing)
    return MocapactEpisodes(layout, infos, places, ACTIONS[actions], offsets)


def _files(data: str) -> list[Path]:
    """Return the HDF5 files of a folder sorted by name, or the given file."""
    path = Path(data).expanduser()
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: no such file or folder")
    found = sorted(file for file in path.iterdir() if file.suffix in (".hdf5", ".h5"))
    if not found:
        raise FileNotFoundError(f"{path}: no .hdf5 file in this folder")
    return found


def _check_clips(data: str, splits: Mapping[str, str] | None, found: set[str], allow_missing: bool) -> None:
    if not found:
        raise ValueError(f"{data}: none of these files has a complete rollout of a requested clip")
    listed = splits or {}
    missing = [clip for clip in listed if clip not in found]
    if missing and not allow_missing:
        raise ValueError(
            f"{data}: {len(missing)} of {len(listed)} listed clips have no complete rollout here: {listing(missing)}; "
            "set allow_missing to skip them"
        )


def _rollouts(
    file: Any, layout: Layout, actions: str, splits: Mapping[str, str] | None
) -> Iterator[tuple[str, EpisodeInfo, Offsets | None]]:
    """Check a file, without reading observations or actions, and yield its complete rollouts: group, info and offsets.

    Offsets are None if h5py must read the rollout.
    """
    num_rollouts = _whole_number(file, "n_start_rollouts") + _whole_number(file, "n_rsi_rollouts")
    _check_observables(file, layout)
    snippets = [
        (name, match["clip"]) for name in file if (match := SNIPPET.fullmatch(name)) and is_group(item(file, name))
    ]
    if not snippets:
        raise ValueError(f"no snippet (a group named clip-start-end); have: {listing(file)}")
    is_plain = file.driver == "sec2" and not file.userblock_size  # otherwise HDF5's offsets are not the file's
    for snippet, clip in snippets:
        if splits is not None and clip not in splits:
            continue
        split = "train" if splits is None else splits[clip]
        parent = item(file, snippet)
        terminated = dataset(file, f"{snippet}/early_termination")
        if terminated.shape != (num_rollouts,):
            raise ValueError(
                f"{snippet}/early_termination must have n_start_rollouts + n_rsi_rollouts = {num_rollouts} entries; "
                f"its shape is {list(terminated.shape)}"
            )
        for rollout in np.flatnonzero(~terminated[()].astype(bool)).tolist():
            group = f"{snippet}/{rollout}"
            found = item(parent, str(rollout))
            actions_shape, actions_start = _locate(file, is_plain, found, f"{group}/{actions}")
            obs_shape, obs_start = _locate(file, is_plain, found and item(found, OBS_GROUP), f"{group}/{OBS}")
            num_steps = actions_shape[0]
            check_matrix(f"{group}/{actions}", actions_shape, None, layout.action_dim)
            check_matrix(f"{group}/{OBS} (one row more than actions)", obs_shape, num_steps + 1, layout.obs_dim)
            offsets = None if obs_start is None or actions_start is None else (obs_start, actions_start)
            yield group, EpisodeInfo(num_steps, clip, split), offsets


def _whole_number(file: Any, name: str) -> int:
    """Return the value of a dataset that holds one non-negative integer."""
    value = dataset(file, name)[()]
    if np.size(value) != 1 or np.asarray(value).dtype.kind not in "iu" or np.asarray(value).item() < 0:
        raise ValueError(f"{name} must be one whole number, 0 or more; got {value!r}")
    return int(np.asarray(value).item())


def _check_observables(file: Any, layout: Layout) -> None:
    """Check that the file stores the used terms at the layout's entries."""
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


def _locate(file: Any, is_plain: bool, group: Any, name: str) -> tuple[tuple[int, ...], int | None]:
    """Return the shape of an array in a group, and its offset in the file, which is None if h5py must read it."""
    array: Any = None
    own = name.rpartition("/")[2]
    if is_plain and is_group(group) and has_own_item(group, own):
        with suppress(KeyError):  # `dataset` raises an error with the cause
            array = load_h5py().h5d.open(group.id, own.encode())  # faster than group[own]
    start = array.get_offset() if array is not None and array.dtype == np.dtype("<f4") else None
    if start is None:
        return dataset(file, name).shape, None
    size = max(array.get_storage_size(), prod(array.shape) * array.dtype.itemsize)
    if start + size > file.id.get_filesize():
        raise ValueError(f"{name} extends beyond the end of the file: the file is truncated")
    return array.shape, int(start)


class MocapactEpisodes(GroupEpisodes):
    """Rollouts of MoCapAct's files, read on access."""

    def __init__(
        self,
        layout: Layout,
        infos: Sequence[EpisodeInfo],
        places: Sequence[tuple[Path, str]],
        actions: str,
        offsets: Sequence[Offsets | None],
    ) -> None:
        super().__init__(layout, infos, places, OBS, actions)
        self._offsets = offsets
        self._stamps = FileStamps(path for path, _ in places)
        starts = np.flatnonzero(np.diff(self.obs_ids) != 1) + 1
        self._columns = [slice(ids[0], ids[-1] + 1) for ids in np.split(self.obs_ids, starts)]

    def read(self, index: int) -> Steps:
        offsets = self._offsets[index]
        if offsets is None:
            return super().read(index)
        path, num_steps = self._places[index][0], self.infos[index].num_steps
        rows = np.empty((num_steps, self.layout.obs_dim), np.float32)
        actions = np.empty((num_steps, self.layout.action_dim), np.float32)
        with naming(path):
            self._stamps.check(path)
            with FileIO(path) as file:
                for array, start in zip((rows, actions), offsets, strict=True):
                    file.seek(start)
                    if file.readinto(array.data) < array.nbytes:
                        raise ValueError("the file is truncated")
        # copying a few runs of neighbouring columns is several times faster than indexing column by column
        return Steps(np.concatenate([rows[:, columns] for columns in self._columns], axis=1), actions)
