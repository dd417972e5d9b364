"""TrackingTask: a policy follows motions with the pinned humanoid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ....body.layout import Layout
from ....errors import import_extra
from ....video import Frame
from ..base import Act, CollectableTask, OnDone, Rollout, Trajectory, checked_actions, ignore
from .bodies import Bodies, lost
from .model import CONTROL_HZ, MAX_ACTION
from .motions import CLIP_SEED, NUM_STEPS, SPLITS, STREAMS, Doubles, TrackingStart, check_at_least, draw_start
from .observation import LayoutAdapter

REWARD_SHARPNESS = 20.0
"""The reward of a step is exp(-20 x mean square error): 0.82 at 0.1 rad, 0.29 at 0.25 rad."""
FRAME_STEPS = 2
"""Control steps per frame of the film."""

Choose = Callable[[Bodies], npt.ArrayLike]
"""The bodies -> their actions [B, J], in the model's order."""


class TrackingTask(CollectableTask):
    """Follow a clip for 3 s, with a random tilt of the torso and random loads of the hands."""

    splits = tuple(SPLITS)
    metrics = ("normalized_return", "normalized_length")
    frames_hz = CONTROL_HZ / FRAME_STEPS
    env_id = "body_transformer/Tracking"
    requirements = ("mujoco", "body-transformer")

    def __init__(self, layout: Layout, num_clips: int = 32, clip_seed: int = CLIP_SEED, batch_size: int = 128) -> None:
        """Make the task with `num_clips` training clips of the seed `clip_seed`, those of `demonstrate`.

        `batch_size` episodes run side by side; it does not change the results.
        """
        check_at_least(1, num_clips=num_clips, batch_size=batch_size)
        check_at_least(0, clip_seed=clip_seed)
        self.adapter = LayoutAdapter(layout)
        self.action_dim = layout.action_dim
        self.num_clips = num_clips
        self.clip_seed = clip_seed
        self.batch_size = batch_size

    def start(self, split: str, seed: int, index: int) -> TrackingStart:
        """Return the start of episode number `index` of a seed."""
        return draw_start(split, self.clip_seed, self.num_clips, (seed,), index)

    # -- evaluation ----------------------------------------------------------------------------------------------------

    def rollouts(self, act: Act, num_episodes: int, seed: int, split: str, on_done: OnDone = ignore) -> list[Rollout]:
        return self._rollouts(self._choose(act), num_episodes, seed, split, on_done)

    def film(self, act: Act, seed: int, split: str) -> list[Frame]:
        """Return the first rollout of the seed: the policy's body on the left, its reference on the right."""
        from .film import film

        start = self.start(split, seed, 0)
        bodies, choose = Bodies([start]), self._choose(act)
        poses = [bodies.pos[0]]
        while bodies.time < NUM_STEPS and not lost(bodies.errors())[0]:
            bodies.step(choose(bodies))
            poses.append(bodies.pos[0])
        return film(start, np.stack(poses)[::FRAME_STEPS], start.clip.pos[: len(poses) : FRAME_STEPS])

    def _choose(self, act: Act) -> Choose:
        def choose(bodies: Bodies) -> npt.ArrayLike:
            actions = checked_actions(act(self.adapter.obs(bodies)), (len(bodies), self.action_dim))
            return self.adapter.to_joints(actions)

        return choose

    def _rollouts(self, choose: Choose, num_episodes: int, seed: int, split: str, on_done: OnDone) -> list[Rollout]:
        check_at_least(1, num_episodes=num_episodes)
        found: list[Rollout] = []
        for first in range(0, num_episodes, self.batch_size):
            last = min(first + self.batch_size, num_episodes)
            starts = [self.start(split, seed, index) for index in range(first, last)]
            found += _roll_out(starts, choose, first, on_done)
        return found

    # -- recording -----------------------------------------------------------------------------------------------------

    def record(
        self, act: Act, episodes: range, seed: int, std: npt.NDArray[np.float64] | None = None
    ) -> Iterator[Trajectory]:
        for index in episodes:
            yield self._record(act, seed, index, std)

    def _record(self, act: Act, seed: int, index: int, std: npt.NDArray[np.float64] | None) -> Trajectory:
        start = draw_start("train", self.clip_seed, self.num_clips, (seed, STREAMS["collect"]), index)
        bodies = Bodies([start])
        noise = np.random.default_rng([*b"collect", seed, index]).standard_normal((NUM_STEPS, self.action_dim))
        obs, executed, clean, reward, success = [self.adapter.obs(bodies)[0]], [], [], [], [True]
        while bodies.time < NUM_STEPS and success[-1]:
            action = np.asarray(act(obs[-1][None]))[0]
            noisy = action if std is None else action + std * noise[bodies.time]
            clean.append(action)
            executed.append(np.clip(noisy, -MAX_ACTION, MAX_ACTION).astype(np.float32))  # the stored precision
            bodies.step(self.adapter.to_joints(executed[-1][None]))
            obs.append(self.adapter.obs(bodies)[0])
            reward.append(float(rewards(bodies.errors())[0]))
            success.append(not lost(bodies.errors())[0])
        return Trajectory(
            seed=index,
            obs=np.stack(obs).astype(np.float64),
            executed=np.stack(executed),
            clean=np.stack(clean).astype(np.float32),
            rewards=np.array(reward),
            success=np.array(success[1:]),
            terminated=not success[-1],
            clip=start.clip.name,
        )

    def describe(self) -> dict[str, Any]:
        box = import_extra("gymnasium", "imitation").spaces.Box
        return {
            "observation_space": box(-np.inf, np.inf, (self.adapter.layout.obs_dim,), np.float64),
            "action_space": box(-MAX_ACTION, MAX_ACTION, (self.action_dim,), np.float32),
            "env_spec": None,  # the task is not in gymnasium's registry
        }


def rewards(errors: Doubles) -> Doubles:
    """Return the rewards of errors, [B, J] -> [B], between 0 and 1."""
    result: Doubles = np.exp(-REWARD_SHARPNESS * np.square(errors).mean(1))
    return result


def _roll_out(starts: list[TrackingStart], choose: Choose, num_before: int, on_done: OnDone) -> list[Rollout]:
    """Play episodes side by side, after `num_before` others; lost bodies are removed."""
    bodies = Bodies(starts)
    lengths, returns = np.zeros(len(starts), dtype=int), np.zeros(len(starts))
    while bodies.time < NUM_STEPS and len(bodies):
        bodies.step(choose(bodies))
        bodies.remove_lost()
        lengths[bodies.ids] += 1
        returns[bodies.ids] += rewards(bodies.errors())
        on_done(num_before + len(starts) - len(bodies))
    on_done(num_before + len(starts))
    return [
        Rollout(start.clip.name, int(length), float(total), length / NUM_STEPS, total / NUM_STEPS)
        for start, length, total in zip(starts, lengths.tolist(), returns.tolist(), strict=True)
    ]
