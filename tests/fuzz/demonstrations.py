"""Readers of demonstrations, motion clips, kept rollouts and experts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from body_transformer.imitation.readers import open_episodes
from body_transformer.imitation.readers.stored import stored_terms

from ..imitation.readers.mocapact_files import write_clip
from ..imitation.readers.small import LAYOUT, by_term, make_episodes
from .inputs import Reader

MAX_READ = 50
"""Episodes that are read of each input."""


def read_all(reader: str, data: Path, layout: Any = LAYOUT) -> None:
    """Read the terms of demonstrations and their episodes, as a training does."""
    if reader != "mocapact":
        stored_terms(str(data))
    episodes = open_episodes(reader, str(data), layout)
    for index in range(min(len(episodes), MAX_READ)):
        episodes.read(index)


def arrays() -> dict[str, Any]:
    """Return the arrays of an .npz file with a flat observation."""
    episodes = make_episodes()
    ends = np.cumsum([len(actions) for _, actions in episodes])
    obs, actions = (np.concatenate([episode[k] for episode in episodes]) for k in (0, 1))
    texts = {"clip": np.array(["a", "b", "c"]), "split": np.array(["train", "validation", "train"])}
    return {"obs": obs, "actions": actions, "episode_ends": ends, **texts}


SIDECAR = "obs: {gravity: 3, clock: 1, touch: 4, arm_pos: 1}\n"


def _npz(folder: Path) -> None:
    for name in ("flat", "terms"):
        (folder / name).mkdir()
    flat = arrays()
    np.savez(folder / "flat" / "demos.npz", **flat)
    (folder / "flat" / "demos.terms.yaml").write_text(SIDECAR)
    obs = flat.pop("obs")
    np.savez_compressed(folder / "terms" / "demos.npz", **by_term(obs), **flat)


def _npy(folder: Path) -> None:
    (folder / "one").mkdir()
    for name, array in arrays().items():
        np.save(folder / "one" / f"{name}.npy", array)
    (folder / "one" / "terms.yaml").write_text(SIDECAR)


def _robomimic(folder: Path) -> None:
    for name in ("flat", "terms"):
        (folder / name).mkdir()
        with h5py.File(folder / name / "demos.hdf5", "w") as file:
            for k, (obs, actions) in enumerate(make_episodes()):
                group = file.create_group(f"data/demo_{k}")
                group["actions"], group.attrs["num_samples"] = actions, len(actions)
                if name == "flat":
                    group["obs"] = obs
                for term, values in by_term(obs).items() if name == "terms" else ():
                    group[f"obs/{term}"] = values
            for split, demos in (("train", [b"demo_0", b"demo_2"]), ("valid", [b"demo_1"])):
                file.create_dataset(f"mask/{split}", data=np.array(demos))
        if name == "flat":
            (folder / name / "demos.terms.yaml").write_text(SIDECAR)


def _minari(folder: Path) -> None:
    data = folder / "one" / "data"
    data.mkdir(parents=True)
    (data / "metadata.json").write_text(json.dumps({"total_episodes": 3, "total_steps": 14, "data_format": "hdf5"}))
    (data.parent / "terms.yaml").write_text(SIDECAR)
    with h5py.File(data / "main_data.hdf5", "w") as file:
        for k, (obs, actions) in enumerate(make_episodes(extra_obs=1)):
            group = file.create_group(f"episode_{k}")
            group["observations"], group["actions"] = obs, actions
            group.attrs.update({"clip": "walk", "split": "train", "id": k})


def _mocapact(folder: Path) -> None:
    (folder / "one").mkdir()
    write_clip(folder / "one" / "CMU_016_22.hdf5", LAYOUT, {"CMU_016_22-0-82": [False, True, False, False]}, length=4)


# -- motion clips ------------------------------------------------------------------------------------------------------


def _clips(folder: Path) -> None:
    from body_transformer.imitation.tasks.mocap.clips import _write
    from body_transformer.rl.mocap.motions import FEATURES

    rng = np.random.default_rng(0)
    (folder / "one").mkdir()
    with h5py.File(folder / "one" / "clips.hdf5", "w") as file:
        for name, frames in (("CMU_001_01", 40), ("CMU_002_01", 60)):
            features = {one: rng.normal(size=(frames, int(np.prod(shape)))) for one, shape in FEATURES.values()}
            _write(file.create_group(name), features, 0.03)
    (folder / "one" / "train.txt").write_text("CMU_001_01\n# a comment\nCMU_002_01-0-20\n")


def _read_clips(folder: Path) -> None:
    import torch

    from body_transformer.imitation.tasks.mocap.clips import clip_lengths
    from body_transformer.rl.mocap.motions import ClipFile, Motions

    clip_lengths(folder / "clips.hdf5")
    found = ClipFile.open(folder / "clips.hdf5", folder / "train.txt")
    found.evaluation_snippets(3)
    Motions.read(found, range(56), "cpu", torch.float32)


def _clip_npz(folder: Path) -> None:
    from ..rl.mocap.conftest import moving

    (folder / "one").mkdir()
    np.savez(folder / "one" / "motions.npz", one=moving(5, 0), two=moving(8, 1))
    names = [f"joint_{k}" for k in range(56)]
    (folder / "one" / "meta.json").write_text(json.dumps({"joint_names": names, "dt": 0.03}))


def _read_clip_npz(folder: Path) -> None:
    from body_transformer.imitation.tasks.mocap.clips import MotionSource

    source = MotionSource.open(folder / "motions.npz", folder / "meta.json")
    for name in source.names():
        source.read(name)


# -- rollouts and experts ----------------------------------------------------------------------------------------------

MADE_WITH = {"expert": "a test"}


def _kept(folder: Path, make: Any) -> Any:
    from body_transformer.rl.mocap.kept import kept

    return kept(folder, MADE_WITH, LAYOUT, "cpu", make)


def _rollouts(folder: Path) -> None:
    import torch

    from body_transformer.imitation.episodes import EpisodeInfo
    from body_transformer.imitation.on_device import OnDevice

    infos = [EpisodeInfo(5, "CMU_001_01"), EpisodeInfo(8, "CMU_002_01")]
    episodes = OnDevice(LAYOUT, infos, torch.randn(13, 8), torch.randn(13, 2))
    episodes.files = {"clips.csv": "clip,split\nCMU_001_01,train\n"}
    _kept(folder / "one", lambda: episodes)
    next((folder / "one").glob("*.lock")).unlink()


def _read_rollouts(folder: Path) -> None:
    def make() -> None:
        raise ValueError("there are no rollouts")

    episodes = _kept(folder, make)
    episodes.statistics()
    for index in range(len(episodes)):
        episodes.read(index)


def _expert(folder: Path) -> None:
    from body_transformer.imitation.actors import SHAPES

    sizes = {"obs": 5, "hidden 0": 4, "hidden 1": 4, "action": 2}
    (folder / "one").mkdir()
    rng = np.random.default_rng(0)
    shapes = {name: tuple(sizes[axis] for axis in axes) for name, axes in SHAPES.items()}
    np.savez(
        folder / "one" / "expert.npz",
        **{name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()},
    )


def _read_expert(folder: Path) -> None:
    from body_transformer.imitation.actors import load_actor

    actor = load_actor(folder / "expert.npz")
    actor.mean(np.zeros((3, actor.obs_dim), np.float32))


DEMONSTRATIONS = {
    "npz": Reader(_npz, lambda folder: read_all("npz", folder / "demos.npz")),
    "npy": Reader(_npy, lambda folder: read_all("npz", folder)),
    "robomimic": Reader(_robomimic, lambda folder: read_all("robomimic", folder / "demos.hdf5")),
    "minari": Reader(_minari, lambda folder: read_all("minari", folder)),
    "mocapact": Reader(_mocapact, lambda folder: read_all("mocapact", folder)),
    "motion-clips": Reader(_clips, _read_clips),
    "motion-npz": Reader(_clip_npz, _read_clip_npz),
    "rollouts": Reader(_rollouts, _read_rollouts, only=(".safetensors",)),
    "dapg-expert": Reader(_expert, _read_expert),
}
