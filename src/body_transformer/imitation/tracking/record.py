"""TrackingRecorder: episodes of the tracking task, with everything that was seen and done."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from ...body.layout import Layout
from ..collect import Recording
from ..task import Act
from .bodies import Bodies
from .clips import NUM_STEPS
from .model import MAX_ACTION
from .starts import STREAMS, draw_start
from .task import TrackingTask, lost, rewards


class TrackingRecorder:
    """Plays the training clips, one episode after the other, from starts on which nobody is tried out."""

    env_id = "body_transformer/Tracking"
    requirements = ("mujoco", "body-transformer")

    def __init__(self, layout: Layout) -> None:
        self.task = TrackingTask(layout)
        self.arrangement = self.task.arrangement
        self.action_dim = layout.action_dim

    def record(
        self, act: Act, episodes: range, seed: int, std: npt.NDArray[np.float64] | None = None
    ) -> Iterator[Recording]:
        """Those episodes of the seed; `std` [A] is of the Gaussian noise on the actions."""
        for index in episodes:
            yield self._episode(act, seed, index, std)

    def _episode(self, act: Act, seed: int, index: int, std: npt.NDArray[np.float64] | None) -> Recording:
        start = draw_start("train", self.task.clip_seed, self.task.num_clips, (seed, STREAMS["collect"]), index)
        bodies = Bodies([start])
        noise = np.random.default_rng([*b"collect", seed, index]).standard_normal((NUM_STEPS, self.action_dim))
        obs, executed, clean, reward, well = [self.arrangement.obs(bodies)[0]], [], [], [], [True]
        while bodies.time < NUM_STEPS and well[-1]:
            action = np.asarray(act(obs[-1][None]))[0]
            done = action if std is None else action + std * noise[bodies.time]
            clean.append(action)
            executed.append(np.clip(done, -MAX_ACTION, MAX_ACTION).astype(np.float32))  # as it is stored
            bodies.step(self.arrangement.to_joints(executed[-1][None]))
            obs.append(self.arrangement.obs(bodies)[0])
            reward.append(float(rewards(bodies.errors())[0]))
            well.append(not lost(bodies.errors())[0])
        return Recording(
            seed=index,
            obs=np.stack(obs).astype(np.float64),
            executed=np.stack(executed),
            clean=np.stack(clean).astype(np.float32),
            rewards=np.array(reward),
            success=np.array(well[1:]),
            terminated=not well[-1],
            clip=start.clip.name,
        )

    def describe(self) -> dict[str, Any]:
        """What Minari stores of the environment; there is none in gymnasium's registry."""
        box = import_module("gymnasium").spaces.Box
        obs_dim = self.arrangement.layout.obs_dim
        return {
            "observation_space": box(-np.inf, np.inf, (obs_dim,), np.float64),
            "action_space": box(-MAX_ACTION, MAX_ACTION, (self.action_dim,), np.float32),
            "env_spec": None,
        }

    def close(self) -> None:
        """It holds nothing."""
