"""Motions to follow, and the start of an episode: its motion, the tilt of the torso and the load of the hands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .model import CONTROL_HZ, pinned_model

Doubles = npt.NDArray[np.float64]

# -- clips: smooth joint motions, each a pure function of its seed -----------------------------------------------------

NUM_STEPS = 150
"""Control steps of a clip: 3 s, long enough that a poor policy loses it."""
LOOKAHEAD = 3
"""Future steps of the reference in an observation: two give the desired acceleration, the third its change."""
NUM_FRAMES = NUM_STEPS + 1 + LOOKAHEAD
"""Frames of a clip: the observation after the last step has LOOKAHEAD frames, too."""

NUM_SINUSOIDS = 3
"""Sinusoids per joint: enough that no two clips look alike."""
SLOWEST_HZ, FASTEST_HZ = 0.15, 1.0
"""Range of frequencies: from about half a period per clip to the fastest swing of such limbs at moderate torques."""
SWING = 0.7
"""Fraction of half the joint's range that the sinusoids may fill together; the centre varies in the rest."""


@dataclass(frozen=True)
class Clip:
    """Joint positions, velocities and accelerations over time, [NUM_FRAMES, joints] each, within the joints' range."""

    name: str
    pos: Doubles
    vel: Doubles
    acc: Doubles


@lru_cache(maxsize=1024)
def clip(split: str, seed: int, index: int) -> Clip:
    """Return a clip; clips of different splits, seeds or indices differ."""
    rng = np.random.default_rng([*split.encode(), seed, index])
    low, high = pinned_model().jnt_range.T
    centre, half = (high + low) / 2, (high - low) / 2
    shape = (len(half), NUM_SINUSOIDS)

    rate = 2 * np.pi * np.exp(rng.uniform(np.log(SLOWEST_HZ), np.log(FASTEST_HZ), shape))  # [J, S]
    phase = rng.uniform(0, 2 * np.pi, shape)
    weight = rng.uniform(0.2, 1.2, shape)  # every sinusoid stays visible beside the others
    size = SWING * half[:, None] * weight / weight.sum(1, keepdims=True)
    centre = centre + (1 - SWING) * half * rng.uniform(-1, 1, len(half))

    angle = rate * (np.arange(NUM_FRAMES) / CONTROL_HZ)[:, None, None] + phase  # [T, J, S]
    motion = (
        centre + (size * np.sin(angle)).sum(2),
        (size * rate * np.cos(angle)).sum(2),
        (-size * rate**2 * np.sin(angle)).sum(2),
    )
    for array in motion:
        array.setflags(write=False)  # all users of this clip share the arrays
    return Clip(f"{split}-{index}", *motion)


# -- starts ------------------------------------------------------------------------------------------------------------

MAX_PAYLOAD_KG = 2.0
"""Largest load per hand. Hand and forearm weigh 1.2 kg, so the load can matter more than the arm."""
NUM_VALIDATION_CLIPS = 128
"""One clip for each of 128 evaluation episodes."""
CLIP_SEED = 1
"""Seed of the clips. Hyperparameters (learning rate, steps, widths) were tuned on the clips of seed 0."""

STREAMS = {"demonstrate": 1, "collect": 2}
"""Kind of recording -> number in the seed, so that recordings of both kinds and rollouts have different starts."""


@dataclass(frozen=True)
class TrackingStart:
    """The start of an episode."""

    clip: Clip
    tilt_rad: float
    """Tilt of the torso; 0 is upright."""
    heading_rad: float
    """Direction of the tilt: 0 is forward (the torso's x axis), a quarter turn is to the left."""
    payloads_kg: tuple[float, float]
    """Loads of the right and the left hand."""

    @property
    def torso_quat(self) -> Doubles:
        """[4] orientation of the torso in the world, w first: a rotation about a horizontal axis."""
        half = self.tilt_rad / 2
        along = np.sin(half) * np.array([-np.sin(self.heading_rad), np.cos(self.heading_rad)])
        return np.array([np.cos(half), *along, 0.0])

    @property
    def gravity(self) -> Doubles:
        """[3] unit vector that points down, in the torso's frame."""
        flat = np.sin(self.tilt_rad)
        return np.array([flat * np.cos(self.heading_rad), flat * np.sin(self.heading_rad), -np.cos(self.tilt_rad)])


SPLITS = {"train": ("train", (0, 60)), "validation": ("validation", (0, 60)), "unseen-tilt": ("train", (60, 90))}
"""Split -> set of clips, and range of tilts in degrees."""


def draw_start(split: str, clip_seed: int, num_clips: int, seed: tuple[int, ...], index: int) -> TrackingStart:
    """Return start number `index` of a seed: clips in turn, everything else at random."""
    clips, tilts_deg = SPLITS[split]
    num_clips = NUM_VALIDATION_CLIPS if clips == "validation" else num_clips
    rng = np.random.default_rng([*split.encode(), *seed, index])
    # All directions of gravity between the two tilts have equal probability.
    highest, lowest = np.cos(np.deg2rad(tilts_deg))
    tilt_rad = float(np.arccos(rng.uniform(lowest, highest)))
    heading_rad = float(rng.uniform(0, 2 * np.pi))
    right, left = rng.uniform(0, MAX_PAYLOAD_KG, 2).tolist()
    return TrackingStart(clip(clips, clip_seed, index % num_clips), tilt_rad, heading_rad, (right, left))
