"""TrackingTask: a policy follows motions with the pinned humanoid, in parallel episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ....body.layout import Layout
from ....errors import import_extra
from ....video import Frame
from ...episodes import Floats
from ..base import (
    Act,
    CollectableTask,
    OnDone,
    Rollout,
    StepBatch,
    Trajectory,
    checked_actions,
    ignore,
    trajectories,
)
from .bodies import Bodies, lost
from .model import CONTROL_HZ, MAX_ACTION
from .motions import CLIP_SEED, NUM_STEPS, SPLITS, STREAMS, Doubles, TrackingStart, draw_start
from .observation import LayoutAdapter

FRAME_STEPS = 2
"""Control steps per frame of the film."""
BATCH_SIZE = 128
"""Episodes that run in parallel; their number does not change a body's motion."""
REWARD_SHARPNESS = 20.0
"""The reward of a step is exp(-20 x mean square error): 0.82 at 0.1 rad, 0.29 at 0.25 rad."""

Choose = Callable[[Bodies, Floats], tuple[Floats, Doubles]]
"""Bodies and their observations [B, O] -> actions before noise [B, A], and actions to execute [B, J].

The first are in the layout's order, the second in the model's.
"""


class TrackingTask(CollectableTask):
    """Follow a clip for 3 s, with a random tilt of the torso and random loads of the hands."""

    splits = tuple(SPLITS)
    metrics = ("normalized_return", "normalized_length")
    frames_hz = CONTROL_HZ / FRAME_STEPS
    env_id = "body_transformer/Tracking"
    requirements = ("mujoco", "body-transformer")

    def __init__(self, layout: Layout, num_clips: int = 32, clip_seed: int = CLIP_SEED) -> None:
        """Make the task with the training clips of `demonstrate`: `num_clips` of the seed `clip_seed`."""
        if num_clips < 1 or clip_seed < 0:
            raise ValueError(f"num_clips must be 1 or more and clip_seed 0 or more; got {num_clips} and {clip_seed}")
        self.adapter = LayoutAdapter(layout)
        self.action_dim = layout.action_dim
        self.num_clips = num_clips
        self.clip_seed = clip_seed

    def start(self, split: str, seed: int, index: int) -> TrackingStart:
        """Return the start of episode number `index` of a seed."""
        return draw_start(split, self.clip_seed, self.num_clips, (seed,), index)

    # -- evaluation ----------------------------------------------------------------------------------------------------

    def rollouts(self, act: Act, num_episodes: int, seed: int, split: str, on_done: OnDone = ignore) -> list[Rollout]:
        start = partial(self.start, split, seed)
        return [rollout(one) for one in play(range(num_episodes), start, self.adapter, self._choose_by(act), on_done)]

    def film(self, act: Act, seed: int, split: str) -> list[Frame]:
        """Return the first rollout of the seed: the policy's body on the left, its reference on the right."""
        from .film import film

        poses: list[Doubles] = []
        choose = self._choose_by(act)

        def watch(bodies: Bodies, obs: Floats) -> tuple[Floats, Doubles]:
            poses.append(bodies.pos[0])
            return choose(bodies, obs)

        start = self.start(split, seed, 0)
        list(play(range(1), lambda index: start, self.adapter, watch))
        return film(start, np.stack(poses)[::FRAME_STEPS], start.clip.pos[: len(poses) : FRAME_STEPS])

    # -- recording -----------------------------------------------------------------------------------------------------

    def record(
        self, act: Act, episodes: range, seed: int, std: npt.NDArray[np.float64] | None = None
    ) -> Iterator[Trajectory]:
        draws = [np.random.default_rng([*b"collect", seed, index]).standard_normal for index in episodes]
        noise = np.stack([draw((NUM_STEPS, self.action_dim)) for draw in draws])  # [B, T, A]
        noise *= 0.0 if std is None else std

        def start(index: int) -> TrackingStart:
            return draw_start("train", self.clip_seed, self.num_clips, (seed, STREAMS["collect"]), index)

        return play(episodes, start, self.adapter, self._choose_by(act, noise, episodes.start))

    def _choose_by(self, act: Act, noise: Doubles | None = None, first: int = 0) -> Choose:
        """Return the function from which `play` gets its actions: the policy's actions plus noise, clipped.

        `noise` [B, T, A] has one row per episode from number `first` on, and one value per step.
        """

        def choose(bodies: Bodies, obs: Floats) -> tuple[Floats, Doubles]:
            actions = checked_actions(act(obs), (len(obs), self.action_dim))
            noisy = actions if noise is None else actions + noise[bodies.ids - first, bodies.time]
            executed = np.clip(noisy, -MAX_ACTION, MAX_ACTION).astype(np.float32)  # the stored precision
            return actions, self.adapter.to_joints(executed)

        return choose

    def describe(self) -> dict[str, Any]:
        box = import_extra("gymnasium", "imitation").spaces.Box
        return {
            "observation_space": box(-np.inf, np.inf, (self.adapter.layout.obs_dim,), np.float64),
            "action_space": box(-MAX_ACTION, MAX_ACTION, (self.action_dim,), np.float32),
            "env_spec": None,  # the task is not in gymnasium's registry
        }


def rollout(episode: Trajectory) -> Rollout:
    """Return the outcome of an episode; the step at which the clip was lost does not count."""
    length, total = int(episode.success.sum()), float(episode.rewards[episode.success].sum())
    return Rollout(episode.clip, length, total, length / NUM_STEPS, total / NUM_STEPS)


# -- parallel episodes -------------------------------------------------------------------------------------------------


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
