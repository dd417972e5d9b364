"""Demonstrations by the expert; noise pushes the body off its clip, so that the data also contain corrections."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ....body.layout import Layout
from ....experiment import load_experiment
from ...episodes import EpisodeInfo, Episodes, Floats, InMemory
from .bodies import Bodies
from .motions import CLIP_SEED, NUM_STEPS, STREAMS, TrackingStart, check_at_least, draw_start
from .observation import LayoutAdapter

MAX_NOISE = 0.45
"""Largest standard deviation of the noise on an action. Without noise a clone has a lower loss but loses its clip in a
tenth of the time: the data contain no errors to recover from."""
BATCH_SIZE = 128
"""Episodes that run side by side."""


def open_episodes(
    data: str | None, layout: Layout, num_clips: int = 32, repetitions: int = 12, clip_seed: int = CLIP_SEED
) -> Episodes:
    """Generate demonstrations of `num_clips` motions, `repetitions` of each; `data` must be None."""
    if data is not None:
        raise ValueError(f"the tracking task generates its own demonstrations: leave data out; got {data!r}")
    return demonstrate(int(num_clips), int(repetitions), clip_seed=int(clip_seed), layout=layout)


def demonstrate(
    num_clips: int = 32,
    repetitions: int = 12,
    seed: int = 0,
    *,
    clip_seed: int = CLIP_SEED,
    max_noise: float = MAX_NOISE,
    layout: Layout | None = None,
) -> InMemory:
    """Show each training clip `repetitions` times.

    Tilt, loads and the size of the noise are drawn per episode from `seed`. The body executes the expert's action plus
    noise; the recorded label is the expert's action. An episode ends early if the noise makes it lose the clip.
    `layout` defines the observation; the default is that of the experiment demo.
    """
    check_at_least(1, num_clips=num_clips, repetitions=repetitions)
    check_at_least(0, seed=seed, clip_seed=clip_seed, max_noise=max_noise)
    layout = layout or load_experiment("demo").layout()
    adapter = LayoutAdapter(layout)
    infos, obs, actions = [], [], []
    for first in range(0, num_clips * repetitions, BATCH_SIZE):
        ids = range(first, min(first + BATCH_SIZE, num_clips * repetitions))
        starts = [draw_start("train", clip_seed, num_clips, (seed, STREAMS["demonstrate"]), index) for index in ids]
        noises = np.stack([_noise(seed, index, max_noise, layout.action_dim) for index in ids])
        for start, (seen, labels) in zip(starts, _record(starts, noises, adapter), strict=True):
            infos.append(EpisodeInfo(len(seen), start.clip.name))
            obs.append(seen)
            actions.append(labels)
    return InMemory(layout, infos, obs, actions)


def _noise(seed: int, index: int, max_noise: float, num_joints: int) -> npt.NDArray[np.float64]:
    """Return the noise [NUM_STEPS, J] of an episode; its size is random, so the data have small and large errors."""
    rng = np.random.default_rng([*b"noise-train", seed, index])
    return rng.uniform(0, max_noise) * rng.standard_normal((NUM_STEPS, num_joints))


def _record(
    starts: Sequence[TrackingStart], noises: npt.NDArray[np.float64], adapter: LayoutAdapter
) -> list[tuple[Floats, Floats]]:
    """Return observations [T, O] and the expert's actions without noise [T, A] per episode."""
    bodies = Bodies(starts)
    obs = np.empty((len(starts), NUM_STEPS, adapter.layout.obs_dim), dtype=np.float32)
    actions = np.empty((len(starts), NUM_STEPS, adapter.layout.action_dim), dtype=np.float32)
    lengths = np.zeros(len(starts), dtype=int)
    while bodies.time < NUM_STEPS and len(bodies):
        expert, ids, time = bodies.expert(), bodies.ids, bodies.time
        obs[ids, time] = adapter.obs(bodies)
        actions[ids, time] = adapter.from_joints(expert)
        lengths[ids] += 1
        bodies.step(expert + noises[ids, time])
        bodies.remove_lost()
    return [(obs[k, :length], actions[k, :length]) for k, length in enumerate(lengths.tolist())]
