"""Starts: which clip an episode follows, how the torso is tilted and what the hands carry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...errors import unknown
from .clips import Clip, Doubles, clip

MAX_PAYLOAD_KG = 2.0
"""A hand. It and its forearm weigh 1.2 kg: what is carried can matter more than what carries it."""
NUM_VALIDATION_CLIPS = 128
"""So that 128 episodes on unseen clips see as many different ones."""
CLIP_SEED = 1
"""Of the clips. Whatever was chosen by results (learning rate, steps, widths) was chosen on those of seed 0."""

STREAMS = {"demonstrate": 1, "collect": 2}
"""Who records demonstrations -> a number beside the seed: they never begin as the task's rollouts do, nor as each
other's."""


@dataclass(frozen=True)
class Start:
    """How an episode begins."""

    clip: Clip
    tilt_rad: float
    """How far the torso leans; 0 is upright."""
    heading_rad: float
    """Where to: 0 forward (the torso's x axis), a quarter turn to the left."""
    payloads_kg: tuple[float, float]
    """In the right and in the left hand."""

    @property
    def torso_quat(self) -> Doubles:
        """[4] the torso's orientation in the world, w first: a turn about a horizontal axis."""
        half = self.tilt_rad / 2
        along = np.sin(half) * np.array([-np.sin(self.heading_rad), np.cos(self.heading_rad)])
        return np.array([np.cos(half), *along, 0.0])

    @property
    def gravity(self) -> Doubles:
        """[3] the unit vector that points down, in the torso's frame."""
        flat = np.sin(self.tilt_rad)
        return np.array([flat * np.cos(self.heading_rad), flat * np.sin(self.heading_rad), -np.cos(self.tilt_rad)])


@dataclass(frozen=True)
class Split:
    """A set of starts: whose clips, and between which tilts."""

    clips: str
    tilts_deg: tuple[float, float]


SPLITS = {
    "train": Split("train", (0, 60)),
    "validation": Split("validation", (0, 60)),
    "unseen-tilt": Split("train", (60, 90)),
}


def draw_start(split: str, clip_seed: int, num_clips: int, seed: tuple[int, ...], index: int) -> Start:
    """Start number `index` of those that `seed` gives: clips in turn, the rest by chance."""
    if split not in SPLITS:
        raise ValueError(unknown("split", split, SPLITS))
    clips, tilts_deg = SPLITS[split].clips, SPLITS[split].tilts_deg
    num_clips = NUM_VALIDATION_CLIPS if clips == "validation" else num_clips
    rng = np.random.default_rng([*split.encode(), *seed, index])
    # Every direction of gravity between the two tilts is as likely as every other.
    highest, lowest = np.cos(np.deg2rad(tilts_deg))
    tilt_rad = float(np.arccos(rng.uniform(lowest, highest)))
    heading_rad = float(rng.uniform(0, 2 * np.pi))
    right, left = rng.uniform(0, MAX_PAYLOAD_KG, 2).tolist()
    return Start(clip(clips, clip_seed, index % num_clips), tilt_rad, heading_rad, (right, left))
