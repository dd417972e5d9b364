"""Parallel episodes of the tracking task, for rollouts, recordings, films and demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ...episodes import Floats
from ..base import OnDone, StepBatch, Trajectory, ignore, trajectories
from .bodies import Bodies, lost
from .motions import NUM_STEPS, Doubles, TrackingStart
from .observation import LayoutAdapter

BATCH_SIZE = 128
"""Episodes that run in parallel; their number does not change a body's motion."""
REWARD_SHARPNESS = 20.0
"""The reward of a step is exp(-20 x mean square error): 0.82 at 0.1 rad, 0.29 at 0.25 rad."""

Choose = Callable[[Bodies, Floats], tuple[Floats, Doubles]]
"""Bodies and their observations [B, O] -> actions before noise [B, A], and actions to execute [B, J].

The first are in the layout's order, the second in the model's.
"""


def play(
    episodes: range,
    start_of: Callable[[int], TrackingStart],
    adapter: LayoutAdapter,
    choose: Choose,
    on_done: OnDone = ignore,
) -> Iterator[Trajectory]:
    """Play the episodes of these numbers until their clips end or are lost, and yield them in order."""
    for first in range(0, len(episodes), BATCH_SIZE):
        batch = episodes[first : first + BATCH_SIZE]
        starts = [start_of(episode) for episode in batch]
        clips = dict(zip(batch, (start.clip.name for start in starts), strict=True))
        steps = []
        for step in _play(Bodies(starts, batch.start), adapter, choose):
            steps.append(step)
            on_done(first + len(batch) - int((~step.over).sum()))
        yield from trajectories(steps, {episode: episode for episode in batch}, clips)


def _play(bodies: Bodies, adapter: LayoutAdapter, choose: Choose) -> Iterator[StepBatch]:
    obs = adapter.obs(bodies)
    while bodies.time < NUM_STEPS and len(bodies):
        clean, actions = choose(bodies, obs)
        bodies.step(actions)
        next_obs, errors = adapter.obs(bodies), bodies.errors()
        is_lost = lost(errors)
        yield StepBatch(
            episodes=bodies.ids,
            obs=obs,
            clean=clean,
            executed=adapter.from_joints(actions),
            next_obs=next_obs,
            rewards=rewards(errors),
            terminated=is_lost,
            truncated=~is_lost & (bodies.time == NUM_STEPS),
            infos={"success": ~is_lost},
        )
        bodies.keep(~is_lost)  # a lost body could rotate faster and faster
        obs = next_obs[~is_lost]


def rewards(errors: Doubles) -> Doubles:
    """Return the rewards of errors, [B, J] -> [B], between 0 and 1."""
    result: Doubles = np.exp(-REWARD_SHARPNESS * np.square(errors).mean(1))
    return result
