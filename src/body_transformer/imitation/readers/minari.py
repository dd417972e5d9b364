"""Minari: a dataset by its name in the local Minari folder, or by the path of its folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ...body.layout import Layout
from ...documents import read_json
from ..episodes import EpisodeInfo, Episodes
from .files import naming
from .hdf5 import GroupEpisodes, check_episode, group_shapes
from .hdf5_items import attribute, is_group, item, open_hdf5
from .stored import StoredShapes
from .terms import check_split, term_keys


def open_episodes(data: str, layout: Layout, obs_keys: Mapping[str, str] | str | None = None) -> Episodes:
    """Open the episodes of a dataset (`D4RL/door/expert-v2`, or a folder).

    Observations are one flat array, or a dictionary whose keys are the layout's terms (`obs_keys` maps terms to other
    keys). The metadata of an episode may contain `clip` and `split`.
    """
    keys = term_keys(layout, obs_keys)
    folder = find_folder(data)
    num_episodes = _num_episodes(folder / "metadata.json")
    path = folder / "main_data.hdf5"
    infos, groups = [], []
    with naming(path), open_hdf5(path) as file:
        for index in range(num_episodes):
            name = f"episode_{index}"
            group = item(file, name)
            if group is None:
                raise ValueError(f"{name} is missing; metadata.json lists {num_episodes} episodes")
            groups.append(name)
            with naming(f"{path}: {name}"):
                num_steps = check_episode(group, "observations", layout, keys, extra_rows=1)
                split = check_split(attribute(group, "split", "train"))
                infos.append(EpisodeInfo(num_steps, str(attribute(group, "clip", "")), split))
    return GroupEpisodes(layout, infos, [(path, group) for group in groups], "observations", keys=keys)


def stored_shapes(data: str) -> StoredShapes:
    """Return the shapes of the first episode."""
    folder = find_folder(data)
    path = folder / "main_data.hdf5"
    with naming(path), open_hdf5(path) as file:
        first = item(file, "episode_0")
        if not is_group(first):
            raise ValueError("the group episode_0 is missing")
        shapes = group_shapes(first, "observations", extra_rows=1)
    return folder.parent if folder.name == "data" else folder, *shapes


def find_folder(data: str) -> Path:
    """Return the folder that contains the dataset's files."""
    root = Path(os.environ.get("MINARI_DATASETS_PATH") or Path("~/.minari/datasets").expanduser())
    for folder in (Path(data).expanduser(), root / data):
        for found in (folder / "data", folder):
            if (found / "metadata.json").is_file():
                return found
    if Path(data).expanduser().is_dir():
        raise FileNotFoundError(f"the folder {data!r} has no .npz file, no actions.npy and no Minari dataset")
    raise FileNotFoundError(
        f"no Minari dataset {data!r}: it is neither a folder nor a dataset in {root}. Published datasets are "
        f"downloaded with: minari download {data}"
    )


def _num_episodes(path: Path) -> int:
    try:
        metadata = read_json(path, strict=False)
        data_format, number = metadata.get("data_format", "hdf5"), metadata["total_episodes"]
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"{path}: not the metadata of a Minari dataset: {error!r}") from error
    if data_format != "hdf5":
        raise ValueError(f"{path}: the dataset is stored as {data_format!r}; only 'hdf5' is supported")
    if type(number) is not int or number < 1:
        raise ValueError(f"{path}: total_episodes must be a whole number, 1 or more; got {number!r}")
    return number
