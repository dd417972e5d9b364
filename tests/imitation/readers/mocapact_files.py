"""Small files in MoCapAct's exact layout."""

from pathlib import Path

import h5py
import numpy as np

from body_transformer import Layout

LENGTH = 12


def write_clip(
    path: Path,
    layout: Layout,
    snippets: dict[str, list[bool]],
    num_start: int = 2,
    num_random: int = 2,
    length: int = LENGTH,
    seed: int = 0,
    **storage: object,
) -> None:
    """Write one file; `snippets` maps a snippet to whether each rollout ended early, which makes it short.

    `storage` holds h5py's options for the large datasets.
    """
    rng = np.random.default_rng(seed)
    with h5py.File(path, "w") as file:
        for snippet, ended_early in snippets.items():
            lengths = [length // 2 if early else length - k for k, early in enumerate(ended_early)]
            for k, steps in enumerate(lengths):
                _write_rollout(file.create_group(f"{snippet}/{k}"), layout, steps, rng, storage)
            file[snippet].create_dataset("early_termination", data=np.array(ended_early, dtype=bool))
            for name, part in (("start_metrics", lengths[:num_start]), ("rsi_metrics", lengths[num_start:])):
                for metric in ("episode_returns", "episode_lengths", "norm_episode_returns", "norm_episode_lengths"):
                    file[snippet].create_dataset(f"{name}/{metric}", data=np.array(part, dtype=np.float64))
        file.create_dataset("ref_steps", data=np.arange(1, 6))
        for name, where in layout.obs_slices.items():
            file.create_dataset(f"observable_indices/walker/{name}", data=np.arange(where.start, where.stop))
        for name, size in (("act", layout.action_dim), ("mean_act", layout.action_dim), ("proprio", layout.obs_dim)):
            file.create_dataset(f"stats/{name}_mean", data=np.zeros(size, np.float32))
            file.create_dataset(f"stats/{name}_var", data=np.ones(size, np.float32))
        file.create_dataset("stats/count", data=sum(lengths))
        file.create_dataset("n_rsi_rollouts", (), np.int64, data=num_random)
        file.create_dataset("n_start_rollouts", (), np.int64, data=num_start)


def _write_rollout(group: h5py.Group, layout: Layout, steps: int, rng: np.random.Generator, storage: dict) -> None:
    obs = rng.standard_normal((steps + 1, layout.obs_dim), dtype=np.float32)
    group.create_dataset("observations/proprioceptive", data=obs, **storage)
    mean = rng.standard_normal((steps, layout.action_dim), dtype=np.float32)
    noise = rng.standard_normal(mean.shape, dtype=np.float32)
    group.create_dataset("mean_actions", data=mean, **storage)
    group.create_dataset("actions", data=mean + 0.1 * noise, **storage)
    for name in ("rewards", "values", "advantages"):
        group.create_dataset(name, data=rng.standard_normal(steps, dtype=np.float32))


SNIPPETS = {
    "CMU_009_12": {"CMU_009_12-0-165": [False, False, True, False], "CMU_009_12-165-363": [False] * 4},
    "CMU_016_22": {"CMU_016_22-0-82": [False] * 4, "CMU_016_22-82-100": [False] * 4},
}
"""Clip -> snippet -> whether each rollout ended early; one of sixteen did."""


def write_folder(folder: Path, layout: Layout, **storage: object) -> Path:
    """Write two clips of two snippets, with two rollouts from the start and two from random frames each."""
    for seed, (clip, snippets) in enumerate(SNIPPETS.items()):
        write_clip(folder / f"{clip}.hdf5", layout, snippets, seed=seed, **storage)
    return folder
