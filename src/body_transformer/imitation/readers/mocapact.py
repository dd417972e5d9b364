"""MoCapAct: a folder with one HDF5 file per clip, which holds rollouts of the clip's snippets (Wagener et al. 2022).

These files store each array contiguously and uncompressed, so reading needs only its offset in the file. Blocks of
rows are read into a small buffer and the used columns are copied out. That is faster than HDF5 itself and does not
block other threads. Repacked files (compressed, chunked, another number type) are read by h5py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from ...body.layout import Layout
from ...errors import import_extra, listing, unknown
from ..episodes import EpisodeInfo, Episodes, Floats, Steps
from ..tasks.mocap.snippets import SNIPPET, read_splits
from .files import FileStamps, OpenFiles, naming
from .hdf5 import dataset, is_group, open_hdf5
from .terms import check_matrix, column_runs

ACTIONS = {"sampled": "actions", "mean": "mean_actions"}
"""Kind of actions to imitate -> its dataset: the executed ones, with the expert's noise, or the expert's mean."""
OBS = "observations/proprioceptive"
BLOCK_BYTES = 2**19
"""Size of a block of rows: small enough to stay in the processor's cache until its columns are copied."""


@dataclass(frozen=True, slots=True)
class RolloutPlace:
    """Location of a rollout."""

    path: Path
    group: str
    obs_start: int | None
    """Offset in bytes; None if h5py must read the array."""
    actions_start: int | None


def open_episodes(
    data: str,
    layout: Layout,
    actions: str = "sampled",
    train_clips: str | None = None,
    validation_clips: str | None = None,
    allow_missing: bool = False,
) -> Episodes:
    """Open the rollouts in a folder that did not terminate early.

    `train_clips` and `validation_clips` are text files with one name per line. With either of them, clips in neither
    are left out, and a clip without a file is an error unless `allow_missing`. Otherwise all clips are for training.
    """
    if actions not in ACTIONS:
        raise ValueError(unknown("kind of actions", actions, ACTIONS))
    splits = read_splits(train_clips, validation_clips)
    places: list[RolloutPlace] = []
    infos: list[EpisodeInfo] = []
    found: set[str] = set()
    for path in _files(data):
        with naming(path), open_hdf5(path) as file:
            for place, info in _rollouts(file, path, layout, ACTIONS[actions], splits):
                places.append(place)
                infos.append(info)
                found.add(info.clip)
    _check_clips(data, splits, found, allow_missing)
    return MocapactEpisodes(layout, infos, places, ACTIONS[actions])


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
    missing = [clip for clip in splits or {} if clip not in found]
    if missing and not allow_missing:
        raise ValueError(
            f"{data}: {len(missing)} of {len(splits or {})} listed clips have no complete rollout here: "
            f"{listing(missing)}; allow_missing skips them"
        )


def _rollouts(
    file: Any, path: Path, layout: Layout, actions: str, splits: Mapping[str, str] | None
) -> Iterator[tuple[RolloutPlace, EpisodeInfo]]:
    """Check a file and yield its complete rollouts; no observation or action is read."""
    num_rollouts = _whole_number(file, "n_start_rollouts") + _whole_number(file, "n_rsi_rollouts")
    _check_observables(file, layout)
    snippets = [(name, match["clip"]) for name in file if (match := SNIPPET.fullmatch(name)) and is_group(file[name])]
    if not snippets:
        raise ValueError(f"no snippet (a group named clip-start-end); have: {listing(file)}")
    # with a user block, or another driver, offsets are not those in the plain file
    file_bytes = path.stat().st_size if file.driver == "sec2" and file.userblock_size == 0 else None
    for snippet, clip in snippets:
        if splits is not None and clip not in splits:
            continue
        split = "train" if splits is None else splits[clip]
        terminated = dataset(file, f"{snippet}/early_termination")
        if terminated.shape != (num_rollouts,):
            raise ValueError(
                f"{snippet}/early_termination must have n_start_rollouts + n_rsi_rollouts = {num_rollouts} entries; "
                f"its shape is {list(terminated.shape)}"
            )
        for rollout in np.flatnonzero(~terminated[()].astype(bool)).tolist():
            group = f"{snippet}/{rollout}"
            actions_shape, actions_start = _locate(file, f"{group}/{actions}", file_bytes)
            obs_shape, obs_start = _locate(file, f"{group}/{OBS}", file_bytes)
            num_steps = actions_shape[0]
            check_matrix(f"{group}/{actions}", actions_shape, None, layout.action_dim)
            check_matrix(f"{group}/{OBS} (one row more than actions)", obs_shape, num_steps + 1, layout.obs_dim)
            yield RolloutPlace(path, group, obs_start, actions_start), EpisodeInfo(num_steps, clip, split)


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


def _locate(file: Any, name: str, file_bytes: int | None) -> tuple[tuple[int, ...], int | None]:
    """Return an array's shape and its offset in the file; None unless it is stored as it lies in memory."""
    try:
        array = import_extra("h5py", "imitation").h5d.open(file.id, name.encode())  # much faster than file[name]
    except KeyError:
        return dataset(file, name).shape, None  # raises an error that says what is wrong
    start = array.get_offset() if file_bytes is not None and array.dtype == np.dtype("<f4") else None
    if start is None or file_bytes is None:
        return dataset(file, name).shape, None
    shape: tuple[int, ...] = array.shape
    if start + 4 * int(np.prod(shape)) > file_bytes:
        raise ValueError(f"{name} extends beyond the end of the file: the file is truncated")
    return shape, int(start)


class MocapactEpisodes(Episodes):
    """Rollouts of MoCapAct's files, read on access."""

    def __init__(self, layout: Layout, infos: list[EpisodeInfo], places: list[RolloutPlace], actions: str) -> None:
        super().__init__(layout, infos)
        self._places = places
        self._actions = actions
        self._runs = column_runs(self.obs_ids)
        self._stamps = FileStamps([place.path for place in places])
        self._plain = OpenFiles(self._open_plain)
        self._hdf5 = OpenFiles(open_hdf5)
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
                _read_into(block, file, place.obs_start + row * self.layout.obs_dim * 4)
                self._copy_used(block, obs[row : row + len(block)])
            _read_into(actions, file, place.actions_start)
        return Steps(obs, actions)

    def origin(self, index: int) -> str:
        return f"{self._places[index].path}: {self._places[index].group}"

    def _copy_used(self, rows: Floats, out: Floats) -> None:
        for whole, chosen in self._runs:
            out[:, chosen] = rows[:, whole]

    def _open_plain(self, path: Path) -> FileIO:
        self._stamps.check(path)
        return FileIO(path)


def _read_into(out: Floats, file: FileIO, start: int) -> None:
    """Fill an array with the file's bytes from `start` on."""
    if not out.size:
        return
    todo = out.reshape(-1).data.cast("B")
    file.seek(start)
    while len(todo):
        done = file.readinto(todo)
        if not done:
            raise ValueError(f"the file ends at byte {file.tell()}: it is truncated")
        todo = todo[done:]
