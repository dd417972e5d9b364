"""Episodes that are groups of HDF5 files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ...body.layout import Layout
from ...errors import listing
from ..episodes import EpisodeInfo, Episodes, Steps
from .files import naming
from .hdf5_items import dataset, is_group, item, open_hdf5
from .stored import FLAT, Shape, first_shapes
from .terms import check_matrix, check_terms, join_terms


def check_episode(group: Any, obs: str, layout: Layout, keys: Mapping[str, str], extra_rows: int = 0) -> int:
    """Check an episode's group for `GroupEpisodes` and return its number of steps.

    Observations have `extra_rows` more rows than actions.
    """
    if group is None:
        raise ValueError("it is a link to nothing")
    if not is_group(group):
        raise ValueError(f"{group.name} must be a group; it is a {type(group).__name__.lower()}")
    actions = dataset(group, "actions")
    check_matrix("actions", actions.shape, None, layout.action_dim)
    num_steps = len(actions)
    terms = item(group, obs)
    if is_group(terms):
        missing = [key for key in keys.values() if item(terms, key) is None]
        if missing:
            have = listing(terms)
            raise ValueError(f"the layout's terms {listing(missing)} are not among the {obs}; have: {have}")
        check_terms(layout, keys, lambda key: dataset(terms, key).shape, num_steps + extra_rows)
    else:
        note = f" ({extra_rows} more rows than actions)" if extra_rows else ""
        check_matrix(f"{obs}{note}", dataset(group, obs).shape, num_steps + extra_rows, layout.obs_dim)
    return num_steps


def group_shapes(group: Any, obs: str, extra_rows: int = 0) -> tuple[dict[str, Shape], Shape]:
    """Return the shapes of one step of an episode: of its observations by name, and of its actions."""
    rows, *actions = dataset(group, "actions").shape
    terms = item(group, obs)
    if not is_group(terms):
        return {FLAT: dataset(group, obs).shape[1:]}, tuple(actions)
    arrays = [(name, found) for name in terms if not is_group(found := item(terms, name))]
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
            obs, actions = item(file, f"{group}/{self._obs}"), dataset(file, f"{group}/{self._actions}")
            if is_group(obs):
                used = join_terms(self.layout, self._keys, num_steps, lambda key: dataset(obs, key)[:num_steps])
            else:
                used = dataset(file, f"{group}/{self._obs}")[:num_steps][:, self.obs_ids].astype(np.float32)
            return Steps(used, actions[()].astype(np.float32))

    def origin(self, index: int) -> str:
        path, group = self._places[index]
        return f"{path}: {group}"
