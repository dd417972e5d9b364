"""a1-walk in plain MuJoCo."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import mujoco
import numpy as np
from mjlab.envs import ManagerBasedRlEnvCfg
from numpy.typing import NDArray
from torch import Tensor

from ...video import View
from ..ground import add_field, part_around
from ..plain import PlainRobots, scene_model
from .model import BASE, CONTROL_DT, DECIMATION
from .parameters import use
from .task import MAX_STEPS, A1s, task_of

SEEN = 3.0
"""m, how far the ground goes on around a robot in a film."""


class PlainEnv(PlainRobots):
    """A1s, each with a model of its own; action [B, 12], observations [B, 48]."""

    max_steps, control_dt = MAX_STEPS, CONTROL_DT
    view = View(body=f"robot/{BASE}", below_m=0.1, distance_m=1.8, shadows=False)

    def __init__(self, cfg: ManagerBasedRlEnvCfg, num_threads: int | None = None) -> None:
        self._cfg, task = cfg, task_of(cfg)
        super().__init__(cfg, scene_model(cfg), num_threads, planes=True)
        self.robots: A1s = A1s(task, self.world, seed=cfg.seed or 0)
        self._kits = self.robots.parameters.kits(self.world.model)

    def scenery(self, poses: NDArray[np.float64]) -> mujoco.MjModel:
        """With the ground near the robot alone: all of it is 14 million triangles."""
        near = part_around(self.robots.task.terrain, poses[:, :2], SEEN)
        scene = replace(self._cfg.scene, spec_fn=partial(add_field, ground=near, solid=False))
        return scene_model(replace(self._cfg, scene=scene))

    def _move(self, action: Tensor) -> None:
        self.robots.memory.act(action)
        for step in range(DECIMATION):
            self.robots.drive(step)
            self._physics()

    def _fit(self, k: int, model: mujoco.MjModel) -> None:
        use(self._kits[k], model)
        self.robots.planes.put(k, model)
