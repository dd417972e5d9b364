"""Minari: a dataset by name, in the local Minari folder, or by the path of its folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...body.layout import Layout
from ...errors import listing
from ..episodes import EpisodeInfo, Episodes
from .files import naming
from .hdf5 import GroupEpisodes, dataset, is_group, open_hdf5
from .terms import check_matrix, check_split, check_terms, term_keys


def open_episodes(data: str, layout: Layout, obs_keys: Mapping[str, str] | str | None = None) -> Episodes:
    """Open the episodes of a dataset (`D4RL/door/expert-v2`, or a folder).

    Observations are one flat array, or a dictionary whose keys are the layout's terms (`obs_keys` maps terms to other
    keys). The metadata of an episode may contain `clip` and `split`.
    """
    keys = term_keys(layout, obs_keys)
    folder = find_folder(data)
    num_episodes = _num_episodes(folder / "metadata.json")
    path = folder / "main_data.hdf5"
    infos = []
    with naming(path), open_hdf5(path) as file:
        for index in range(num_episodes):
            group = file.get(f"episode_{index}")
            if not is_group(group):
                raise ValueError(f"episode_{index} is missing; metadata.json lists {num_episodes} episodes")
            try:
                infos.append(_check(group, layout, keys))
            except ValueError as error:
                raise ValueError(f"episode_{index}: {error}") from error
    groups = [f"episode_{index}" for index in range(num_episodes)]
    return GroupEpisodes(layout, infos, path, groups, "observations", keys)


def find_folder(data: str) -> Path:
    """Return the folder that contains the dataset's files."""
    root = Path(os.environ.get("MINARI_DATASETS_PATH") or Path("~/.minari/datasets").expanduser())
    for folder in (Path(data).expanduser(), root / data):
        for found in (folder / "data", folder):
            if (found / "metadata.json").is_file():
                return found
    raise FileNotFoundError(
        f"no Minari dataset {data!r}: it is neither a folder nor a dataset in {root}. Published datasets are "
        f"downloaded with: minari download {data}"
    )


def _num_episodes(path: Path) -> int:
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))
        data_format, number = metadata.get("data_format", "hdf5"), metadata["total_episodes"]
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"{path}: not the metadata of a Minari dataset: {error!r}") from error
    if data_format != "hdf5":
        raise ValueError(f"{path}: the dataset is stored as {data_format!r}; only 'hdf5' is supported")
    if type(number) is not int or number < 1:
        raise ValueError(f"{path}: total_episodes must be a whole number, 1 or more; got {number!r}")
    return number


def _check(group: Any, layout: Layout, keys: Mapping[str, str]) -> EpisodeInfo:
    """Check that an episode has T actions and T + 1 observations of the right widths."""
    actions = dataset(group, "actions")
    check_matrix("actions", actions.shape, None, layout.action_dim)
    rows = len(actions) + 1
    if is_group(group.get("observations")):
        missing = [key for key in keys.values() if key not in group["observations"]]
        if missing:
            have = listing(group["observations"])
            raise ValueError(f"the layout's terms {listing(missing)} are not among the observations; have: {have}")
        check_terms(layout, keys, lambda key: dataset(group["observations"], key).shape, rows)
    else:
        shape = dataset(group, "observations").shape
        check_matrix("observations (one row more than actions)", shape, rows, layout.obs_dim)
    return EpisodeInfo(len(actions), str(group.attrs.get("clip", "")), check_split(group.attrs.get("split", "train")))
