"""Demonstrations: the expert shows the clips, pushed off them by noise, so that there is something to recover from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...body.layout import Layout
from ...experiment import load_experiment
from ..episodes import EpisodeInfo, Floats, InMemory
from .bodies import Bodies
from .clips import NUM_STEPS
from .observation import Arrangement
from .starts import CLIP_SEED, STREAMS, Start, draw_start
from .task import lost

MAX_NOISE = 0.45
"""Largest standard deviation of the noise on an action. Without noise a clone has a lower loss and loses its clip in a
tenth of the time: it has never seen itself err."""
BATCH_SIZE = 128
"""Episodes side by side."""


def demonstrate(
    num_clips: int = 32,
    repetitions: int = 12,
    seed: int = 0,
    *,
    clip_seed: int = CLIP_SEED,
    num_validation_clips: int = 0,
    max_noise: float = MAX_NOISE,
    layout: Layout | None = None,
) -> InMemory:
    """Each of the training clips `repetitions` times, each of the validation clips once (split "validation").

    Tilt, payloads and the noise's size are drawn anew for each episode from `seed`. The body is moved by the expert's
    action plus noise; recorded is the expert's own. An episode ends early where the noise makes it lose the clip.
    `layout` says what is recorded; by default the experiment demo's.
    """
    for name, value, least in (
        ("num_clips", num_clips, 1),
        ("repetitions", repetitions, 1),
        ("seed", seed, 0),
        ("clip_seed", clip_seed, 0),
        ("num_validation_clips", num_validation_clips, 0),
        ("max_noise", max_noise, 0),
    ):
        if not value >= least:
            raise ValueError(f"{name} must be at least {least}; got {value!r}")
    layout = layout or load_experiment("demo").layout()
    arrangement = Arrangement(layout)
    infos, obs, actions = [], [], []
    for split, number in (("train", num_clips * repetitions), ("validation", num_validation_clips)):
        for first in range(0, number, BATCH_SIZE):
            ids = range(first, min(first + BATCH_SIZE, number))
            starts = [draw_start(split, clip_seed, num_clips, (seed, STREAMS["demonstrate"]), index) for index in ids]
            noises = np.stack([_noise(split, seed, index, max_noise, layout.action_dim) for index in ids])
            for start, (seen, done) in zip(starts, _record(starts, noises, arrangement), strict=True):
                infos.append(EpisodeInfo(len(seen), start.clip.name, split))
                obs.append(seen)
                actions.append(done)
    return InMemory(layout, infos, obs, actions)


def _noise(split: str, seed: int, index: int, max_noise: float, num_joints: int) -> npt.NDArray[np.float64]:
    """[NUM_STEPS, J] of an episode: its size is drawn, too, so that small and large errors are both seen."""
    rng = np.random.default_rng([*b"noise-", *split.encode(), seed, index])
    return rng.uniform(0, max_noise) * rng.standard_normal((NUM_STEPS, num_joints))


def _record(
    starts: Sequence[Start], noises: npt.NDArray[np.float64], arrangement: Arrangement
) -> list[tuple[Floats, Floats]]:
    """Observations and the expert's clean actions, [T, O] and [T, A] of each episode."""
    bodies = Bodies(starts)
    running = np.arange(len(starts))
    obs = np.empty((len(starts), NUM_STEPS, arrangement.layout.obs_dim), dtype=np.float32)
    actions = np.empty((len(starts), NUM_STEPS, arrangement.layout.action_dim), dtype=np.float32)
    lengths = np.zeros(len(starts), dtype=int)
    for time in range(NUM_STEPS):
        expert = bodies.expert()
        obs[running, time] = arrangement.obs(bodies)
        actions[running, time] = arrangement.from_joints(expert)
        lengths[running] += 1
        bodies.step(expert + noises[running, time])
        on = ~lost(bodies.errors())
        bodies.keep(on)
        running = running[on]
        if not len(running):
            break
    return [(obs[k, :length], actions[k, :length]) for k, length in enumerate(lengths.tolist())]
