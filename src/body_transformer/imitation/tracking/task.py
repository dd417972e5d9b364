"""TrackingTask: a policy is tried on the pinned humanoid."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ...body.layout import Layout
from ...video import Frame
from ..task import Act, Result, Task
from .bodies import Bodies
from .clips import NUM_STEPS, Doubles
from .model import CONTROL_HZ
from .observation import Arrangement
from .starts import CLIP_SEED, SPLITS, Start, draw_start

MAX_ERROR_RAD = 0.25
"""Mean over joints; beyond it the clip is lost and the episode over."""
REWARD_SHARPNESS = 20.0
"""A step's reward is exp(-20 x mean square error): 0.82 at 0.1 rad, 0.29 at 0.25 rad."""
FRAME_STEPS = 2
"""Control steps a frame of the film."""

Choose = Callable[[Bodies], npt.ArrayLike]
"""The bodies now -> their actions [B, J], in the model's order."""


class TrackingTask(Task):
    """Follow a clip for 3 s, the torso tilted and the hands loaded as chance has it."""

    splits = tuple(SPLITS)
    metrics = ("normalized_return", "normalized_length")
    frames_hz = CONTROL_HZ / FRAME_STEPS

    def __init__(self, layout: Layout, num_clips: int = 32, clip_seed: int = CLIP_SEED, batch_size: int = 128) -> None:
        """`num_clips` training clips, drawn with `clip_seed`, as `demonstrate` has them; `batch_size` episodes run side
        by side, which changes no result."""
        for name, value, least in (
            ("num_clips", num_clips, 1),
            ("clip_seed", clip_seed, 0),
            ("batch_size", batch_size, 1),
        ):
            if value < least:
                raise ValueError(f"{name} must be a whole number from {least} up; got {value!r}")
        self.arrangement = Arrangement(layout)
        self.num_clips = num_clips
        self.clip_seed = clip_seed
        self.batch_size = batch_size

    def start(self, split: str, seed: int, index: int) -> Start:
        """How episode number `index` of those that `seed` gives begins."""
        return draw_start(split, self.clip_seed, self.num_clips, (seed,), index)

    def rollouts(
        self,
        act: Act,
        num_episodes: int,
        seed: int,
        split: str,
        on_done: Callable[[int], object] = lambda done: None,
    ) -> list[Result]:
        return self._rollouts(self._choose(act), num_episodes, seed, split, on_done)

    def expert_rollouts(self, num_episodes: int, seed: int, split: str) -> list[Result]:
        """The same for the expert: what can be reached."""
        return self._rollouts(Bodies.expert, num_episodes, seed, split, lambda done: None)

    def film(self, act: Act, seed: int, split: str) -> list[Frame]:
        """The first of the rollouts that `seed` gives: the policy's body on the left, its reference on the right."""
        from .film import film

        start = self.start(split, seed, 0)
        bodies, choose = Bodies([start]), self._choose(act)
        poses = [bodies.pos[0]]
        while bodies.time < NUM_STEPS and not lost(bodies.errors())[0]:
            bodies.step(choose(bodies))
            poses.append(bodies.pos[0])
        return film(start, np.stack(poses)[::FRAME_STEPS], start.clip.pos[: len(poses) : FRAME_STEPS])

    def _choose(self, act: Act) -> Choose:
        shape = self.arrangement.layout.action_dim

        def choose(bodies: Bodies) -> npt.ArrayLike:
            actions = np.asarray(act(self.arrangement.obs(bodies)))
            if actions.shape != (len(bodies), shape):
                raise ValueError(f"the policy must give actions [{len(bodies)}, {shape}]; got {list(actions.shape)}")
            if not np.isfinite(actions).all():
                raise ValueError(f"the policy gave actions that are not finite, at step {bodies.time}")
            return self.arrangement.to_joints(actions)

        return choose

    def _rollouts(
        self, choose: Choose, num_episodes: int, seed: int, split: str, on_done: Callable[[int], object]
    ) -> list[Result]:
        if num_episodes < 1:
            raise ValueError(f"num_episodes must be a whole number from 1 up; got {num_episodes!r}")
        results: list[Result] = []
        for first in range(0, num_episodes, self.batch_size):
            last = min(first + self.batch_size, num_episodes)
            starts = [self.start(split, seed, index) for index in range(first, last)]
            results += _try(starts, choose, first, on_done)
        return results


def lost(errors: Doubles) -> npt.NDArray[np.bool_]:
    """[B] whose errors [B, J] are too large; a body that is nowhere is lost too."""
    within: npt.NDArray[np.bool_] = np.abs(errors).mean(1) <= MAX_ERROR_RAD
    return ~within


def rewards(errors: Doubles) -> Doubles:
    """[B, J] -> [B], between 0 and 1."""
    result: Doubles = np.exp(-REWARD_SHARPNESS * np.square(errors).mean(1))
    return result


def _try(starts: list[Start], choose: Choose, num_before: int, on_done: Callable[[int], object]) -> list[Result]:
    """Episodes side by side, after `num_before` others; those that are lost leave."""
    bodies = Bodies(starts)
    running = np.arange(len(starts))
    lengths, returns = np.zeros(len(starts), dtype=int), np.zeros(len(starts))
    for _ in range(NUM_STEPS):
        bodies.step(choose(bodies))
        errors = bodies.errors()
        on = ~lost(errors)
        if not on.all():
            bodies.keep(on)
            running = running[on]
            on_done(num_before + len(starts) - len(running))
        lengths[running] += 1
        returns[running] += rewards(errors[on])
        if not len(running):
            break
    else:
        on_done(num_before + len(starts))
    return [
        Result(start.clip.name, int(length), float(total), length / NUM_STEPS, total / NUM_STEPS)
        for start, length, total in zip(starts, lengths.tolist(), returns.tolist(), strict=True)
    ]
