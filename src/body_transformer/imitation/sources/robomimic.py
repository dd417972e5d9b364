"""robomimic: one HDF5 file, `data/demo_k/{obs/<key>, actions}`, filter keys under `mask`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...body.layout import Layout
from ...errors import listing
from ..episodes import EpisodeInfo, Episodes, Steps
from .files import OpenFiles, naming
from .hdf5 import dataset, is_group, open_file, strings
from .terms import check_flat, check_terms, side_by_side, term_keys

FILTERS = {"train": "train", "valid": "validation"}
"""Filter key -> split."""


def open_episodes(data: str, layout: Layout, obs_keys: Mapping[str, str] | str | None = None) -> Episodes:
    """The demonstrations of a file; `obs_keys` maps terms of the layout to keys of other names.

    Where the file has the filter keys `train` or `valid`, demonstrations in neither are left out; without them, all
    are for training.
    """
    path = Path(data).expanduser()
    keys = term_keys(layout, obs_keys)
    with naming(path), open_file(path) as file:
        if not is_group(file.get("data")):
            raise ValueError(f"there is no group 'data'; have: {listing(file)}")
        names = sorted(file["data"], key=lambda name: (len(name), name))  # demo_2 before demo_10
        splits = _splits(file, names)
        demos = [name for name in names if name in splits]
        infos = [EpisodeInfo(_check(file[f"data/{name}"], layout, keys), split=splits[name]) for name in demos]
        if not demos:
            raise ValueError("there is no demonstration in it")
    return RobomimicEpisodes(layout, infos, path, demos, keys)


def _splits(file: Any, names: list[str]) -> dict[str, str]:
    """Demonstration -> split, of those that are used."""
    filters = [name for name in FILTERS if f"mask/{name}" in file]
    if not filters:
        return dict.fromkeys(names, "train")
    splits: dict[str, str] = {}
    for name in filters:
        for demo in strings(file[f"mask/{name}"][()]):
            if demo not in names:
                raise ValueError(f"mask/{name} names {demo!r}, which is not there")
            if splits.get(demo, FILTERS[name]) != FILTERS[name]:
                raise ValueError(f"{demo!r} is in mask/train and in mask/valid")
            splits[demo] = FILTERS[name]
    return splits


def _check(demo: Any, layout: Layout, keys: Mapping[str, str]) -> int:
    """The number of steps, once everything fits."""
    if not is_group(demo) or not is_group(demo.get("obs")):
        raise ValueError(f"{demo.name} must be a group with a group 'obs' in it")
    actions = dataset(demo, "actions")
    check_flat(actions.name, actions.shape, None, layout.action_dim)
    said = demo.attrs.get("num_samples", len(actions))
    if int(said) != len(actions):
        raise ValueError(f"{demo.name} has num_samples {int(said)} and {len(actions)} actions")
    try:
        check_terms(layout, keys, lambda key: dataset(demo["obs"], key).shape, len(actions))
    except ValueError as error:
        raise ValueError(f"{demo.name}: {error}") from None
    return len(actions)


class RobomimicEpisodes(Episodes):
    """Demonstrations, read when asked for."""

    def __init__(
        self, layout: Layout, infos: list[EpisodeInfo], path: Path, demos: list[str], keys: Mapping[str, str]
    ) -> None:
        super().__init__(layout, infos)
        self._path = path
        self._demos = demos
        self._keys = keys
        self._files = OpenFiles(open_file)

    def read(self, index: int) -> Steps:
        with self._files.use(self._path) as file:
            demo = file["data"][self._demos[index]]
            obs = side_by_side(self.layout, self._keys, self.infos[index].num_steps, lambda key: demo["obs"][key][()])
            return Steps(obs, demo["actions"][()].astype(np.float32))

    def origin(self, index: int) -> str:
        return f"{self._path}: data/{self._demos[index]}"
