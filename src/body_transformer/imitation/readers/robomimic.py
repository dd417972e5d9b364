"""robomimic: one HDF5 file, `data/demo_k/{obs/<key>, actions}`, filter keys under `mask`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...body.layout import Layout
from ...errors import listing
from ..episodes import EpisodeInfo, Episodes
from .files import naming
from .hdf5 import GroupEpisodes, check_episode, group_shapes
from .hdf5_items import attribute, dataset, is_group, item, open_hdf5
from .stored import StoredShapes
from .terms import term_keys

FILTERS = {"train": "train", "valid": "validation"}
"""Filter key -> split."""


def open_episodes(data: str, layout: Layout, obs_keys: Mapping[str, str] | str | None = None) -> Episodes:
    """Open the demonstrations of a file; `obs_keys` maps terms of the layout to keys of other names.

    If the file has the filter keys `train` or `valid`, demonstrations in neither are left out. Otherwise all are for
    training.
    """
    path = Path(data).expanduser()
    keys = term_keys(layout, obs_keys)
    with naming(path), open_hdf5(path) as file:
        data_group = item(file, "data")
        if not is_group(data_group):
            raise ValueError(f"the group 'data' is missing; have: {listing(file)}")
        names = sorted(data_group, key=lambda name: (len(name), name))  # demo_2 before demo_10
        splits = _splits(file, names)
        demos = [name for name in names if name in splits]
        if not demos:
            raise ValueError("the file has no demonstrations")
        infos = []
        for name in demos:
            demo = item(data_group, name)
            with naming(f"{path}: data/{name}"):
                num_steps = check_episode(demo, "obs", layout, keys)
                num_samples = int(attribute(demo, "num_samples", num_steps))
                if num_samples != num_steps:
                    raise ValueError(f"num_samples is {num_samples}, but there are {num_steps} actions")
            infos.append(EpisodeInfo(num_steps, split=splits[name]))
    return GroupEpisodes(layout, infos, [(path, f"data/{name}") for name in demos], "obs", keys=keys)


def stored_shapes(data: str) -> StoredShapes:
    """Return the shapes of the first demonstration."""
    path = Path(data).expanduser()
    with naming(path), open_hdf5(path) as file:
        demos = item(file, "data")
        if not is_group(demos) or not len(demos):
            raise ValueError(f"the group 'data' is missing or empty; have: {listing(file)}")
        name = next(iter(demos))
        first = item(demos, name)
        if not is_group(first):
            raise ValueError(f"data/{name} must be a group")
        return path, *group_shapes(first, "obs")


def _splits(file: Any, names: list[str]) -> dict[str, str]:
    """Return demonstration -> split for those that are used."""
    filters = [name for name in FILTERS if item(file, f"mask/{name}") is not None]
    if not filters:
        return dict.fromkeys(names, "train")
    splits: dict[str, str] = {}
    known = set(names)
    for name in filters:
        chosen = dataset(file, f"mask/{name}", "strings")
        if (chosen.size or 0) > len(names):
            raise ValueError(f"mask/{name} has {chosen.size:,} names; there are {len(names):,} demonstrations")
        for place in np.ndindex(chosen.shape or ()) if chosen.size else ():  # together, the names could fill the memory
            demo = chosen.asstr()[place]
            if demo not in known:
                raise ValueError(f"mask/{name} names {demo!r}, which is not in 'data'")
            if splits.get(demo, FILTERS[name]) != FILTERS[name]:
                raise ValueError(f"{demo!r} is in both mask/train and mask/valid")
            splits[demo] = FILTERS[name]
    return splits
