"""Demonstrations by the expert; noise moves the body away from its clip, so that the data also contain corrections."""

from __future__ import annotations

import numpy as np

from ....body.layout import Layout
from ...episodes import EpisodeInfo, Episodes, Floats, InMemory
from .bodies import Bodies
from .motions import CLIP_SEED, NUM_STEPS, STREAMS, Doubles, TrackingStart, draw_start
from .observation import LayoutAdapter
from .task import play

MAX_NOISE = 0.45
"""Largest standard deviation of the noise on an action. Without noise the data contain no errors to recover from. A
clone then has a lower loss, but loses its clip in a tenth of the time."""


def open_episodes(
    data: str | None, layout: Layout, num_clips: int = 32, repetitions: int = 12, clip_seed: int = CLIP_SEED
) -> Episodes:
    """Generate demonstrations of `num_clips` motions, `repetitions` of each; `data` must be None."""
    if data is not None:
        raise ValueError(f"the tracking task generates its own demonstrations: leave data out; got {data!r}")
    return demonstrate(layout, num_clips, repetitions, clip_seed)


def demonstrate(
    layout: Layout,
    num_clips: int,
    repetitions: int,
    clip_seed: int = CLIP_SEED,
    seed: int = 0,
    max_noise: float = MAX_NOISE,
) -> InMemory:
    """Demonstrate each training clip `repetitions` times.

    Tilt, loads and the size of the noise are drawn per episode from `seed`. The body executes the expert's action plus
    noise; the recorded label is the expert's action. An episode ends early if the noise makes it lose the clip.
    """
    if min(num_clips, repetitions) < 1 or min(seed, clip_seed) < 0:
        raise ValueError(
            f"num_clips and repetitions must be 1 or more, seed and clip_seed 0 or more; got {num_clips}, "
            f"{repetitions}, {seed} and {clip_seed}"
        )
    adapter, episodes = LayoutAdapter(layout), range(num_clips * repetitions)
    noise = np.stack([_noise(seed, index, max_noise, layout.action_dim) for index in episodes])  # [B, T, J]

    def choose(bodies: Bodies, obs: Floats) -> tuple[Floats, Doubles]:
        expert = bodies.expert()
        return adapter.from_joints(expert), expert + noise[bodies.ids, bodies.time]

    def start(index: int) -> TrackingStart:
        return draw_start("train", clip_seed, num_clips, (seed, STREAMS["demonstrate"]), index)

    infos, obs, actions = [], [], []
    for shown in play(episodes, start, adapter, choose):
        infos.append(EpisodeInfo(shown.num_steps, shown.clip))
        obs.append(shown.obs[:-1].astype(np.float32))
        actions.append(shown.clean)
    return InMemory(layout, infos, obs, actions)


def _noise(seed: int, index: int, max_noise: float, num_joints: int) -> Doubles:
    """Return the noise [NUM_STEPS, J] of an episode; its size is random, so the data have small and large errors."""
    rng = np.random.default_rng([*b"noise-train", seed, index])
    return rng.uniform(0, max_noise) * rng.standard_normal((NUM_STEPS, num_joints))
