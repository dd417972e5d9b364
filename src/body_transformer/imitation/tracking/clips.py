"""Clips: smooth joint motions to follow, each a pure function of its seed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .model import CONTROL_HZ, pinned_model

Doubles = npt.NDArray[np.float64]

NUM_STEPS = 150
"""Control steps of a clip: 3 s, long enough for a poor policy to lose it."""
LOOKAHEAD = 3
"""Steps of the reference ahead that a policy sees: two give the acceleration wanted, the third how it changes."""
NUM_FRAMES = NUM_STEPS + LOOKAHEAD
"""Frames that are looked at: before the last step, up to LOOKAHEAD beyond the one before it."""

NUM_SINUSOIDS = 3
"""A joint: enough that no two clips look alike."""
SLOWEST_HZ, FASTEST_HZ = 0.15, 1.0
"""Half a swing a clip at least; at most what limbs of this size do without violence."""
SWING = 0.7
"""How much of half the joint's range the sinusoids may fill together; the rest is for the centre to vary."""


@dataclass(frozen=True)
class Clip:
    """Joint positions, velocities and accelerations over time, [NUM_FRAMES, joints] each; at most the joints' range."""

    name: str
    pos: Doubles
    vel: Doubles
    acc: Doubles


@lru_cache(maxsize=1024)
def clip(split: str, seed: int, index: int) -> Clip:
    """The clip of that number; no two splits, seeds or numbers have one in common."""
    rng = np.random.default_rng([*split.encode(), seed, index])
    low, high = pinned_model().jnt_range.T
    centre, half = (high + low) / 2, (high - low) / 2
    shape = (len(half), NUM_SINUSOIDS)

    rate = 2 * np.pi * np.exp(rng.uniform(np.log(SLOWEST_HZ), np.log(FASTEST_HZ), shape))  # [J, S]
    phase = rng.uniform(0, 2 * np.pi, shape)
    weight = rng.uniform(0.2, 1.2, shape)  # no sinusoid is lost beside the others
    size = SWING * half[:, None] * weight / weight.sum(1, keepdims=True)
    centre = centre + (1 - SWING) * half * rng.uniform(-1, 1, len(half))

    angle = rate * (np.arange(NUM_FRAMES) / CONTROL_HZ)[:, None, None] + phase  # [T, J, S]
    motion = (
        centre + (size * np.sin(angle)).sum(2),
        (size * rate * np.cos(angle)).sum(2),
        (-size * rate**2 * np.sin(angle)).sum(2),
    )
    for array in motion:
        array.setflags(write=False)  # they are shared by all who ask for this clip
    return Clip(f"{split}-{index}", *motion)
