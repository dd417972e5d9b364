"""HDF5: checked access to files and datasets, and episodes that are groups of one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ...body.layout import Layout
from ...errors import import_extra, listing
from ..episodes import EpisodeInfo, Episodes, Steps
from .files import naming
from .stored import FLAT, Shape, first_shapes
from .terms import check_matrix, check_terms, join_terms


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
    return isinstance(item, import_extra("h5py", "imitation").Group)


def dataset(group: Any, name: str) -> Any:
    """Return a dataset of numbers; raise if it is missing, not numeric or was never written."""
    found = group.get(name)
    where = f"{group.name.rstrip('/')}/{name}"
    if found is None:
        raise ValueError(f"{where} is missing; {group.name} has: {listing(group)}")
    if not isinstance(found, import_extra("h5py", "imitation").Dataset):
        raise ValueError(f"{where} must be a dataset; it is a {type(found).__name__.lower()}")
    if found.dtype.kind not in "fiub":
        raise ValueError(f"{where} must hold numbers; it holds {found.dtype}")
    if found.size and not found.id.get_storage_size():
        raise ValueError(f"{where} was never written: the recording stopped early")
    return found


def check_episode(group: Any, obs: str, layout: Layout, keys: Mapping[str, str], extra_rows: int = 0) -> int:
    """Check an episode's group for `GroupEpisodes` and return its number of steps.

    Observations have `extra_rows` more rows than actions.
    """
    if not is_group(group):
        raise ValueError(f"{group.name} must be a group; it is a {type(group).__name__.lower()}")
    actions = dataset(group, "actions")
    check_matrix("actions", actions.shape, None, layout.action_dim)
    num_steps = len(actions)
    if is_group(group.get(obs)):
        missing = [key for key in keys.values() if key not in group[obs]]
        if missing:
            have = listing(group[obs])
            raise ValueError(f"the layout's terms {listing(missing)} are not among the {obs}; have: {have}")
        check_terms(layout, keys, lambda key: dataset(group[obs], key).shape, num_steps + extra_rows)
    else:
        note = f" ({extra_rows} more rows than actions)" if extra_rows else ""
        check_matrix(f"{obs}{note}", dataset(group, obs).shape, num_steps + extra_rows, layout.obs_dim)
    return num_steps


def group_shapes(group: Any, obs: str, extra_rows: int = 0) -> tuple[dict[str, Shape], Shape]:
    """Return the shapes of one step of an episode: of its observations by name, and of its actions."""
    rows, *actions = dataset(group, "actions").shape
    if not is_group(group.get(obs)):
        return {FLAT: dataset(group, obs).shape[1:]}, tuple(actions)
    arrays = [(name, item) for name, item in group[obs].items() if not is_group(item)]
    return first_shapes(arrays, rows + extra_rows), tuple(actions)


MAX_OPEN = 16
"""Number of files that stay open, the most recently used ones."""


class GroupEpisodes(Episodes):
    """Episodes that are groups of HDF5 files, read on access.

    A group holds the array `actions` and, under the name `obs`, one flat array or a group with an array per term. Rows
    of observations beyond the number of actions are left out.
    """

    def __init__(
        self,
        layout: Layout,
        infos: Sequence[EpisodeInfo],
        places: Sequence[tuple[Path, str]],
        obs: str,
        actions: str = "actions",
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """Take the file and group of each episode in `places`; `keys` maps terms to the names of their arrays."""
        super().__init__(layout, infos)
        self._places, self._obs, self._actions, self._keys = places, obs, actions, keys or {}
        self._open = lru_cache(MAX_OPEN)(open_hdf5)

    def read(self, index: int) -> Steps:
        path, group = self._places[index]
        num_steps = self.infos[index].num_steps
        with naming(path):
            file = self._open(path)  # it stays open while this variable exists, even if the cache drops it
            obs, actions = file[f"{group}/{self._obs}"], file[f"{group}/{self._actions}"]
            if is_group(obs):
                used = join_terms(self.layout, self._keys, num_steps, lambda key: obs[key][:num_steps])
            else:
                used = obs[:num_steps][:, self.obs_ids].astype(np.float32)
            return Steps(used, actions[()].astype(np.float32))

    def origin(self, index: int) -> str:
        path, group = self._places[index]
        return f"{path}: {group}"
