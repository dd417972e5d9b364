"""The humanoid tasks in plain MuJoCo, on the height field itself where the ground is uneven."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
from mjlab.envs import ManagerBasedRlEnvCfg
from numpy.typing import NDArray
from torch import Tensor

from ..plain import PlainRobots, scene_model
from .model import CONTROL_DT, DECIMATION
from .still import VIEW
from .task import MAX_STEPS, Humanoids, task_of


class PlainEnv(PlainRobots):
    """Humanoids; action [B, 21], observations [B, 100]."""

    max_steps, control_dt = MAX_STEPS, CONTROL_DT
    view = replace(VIEW, shadows=False)  # the sun shines around the origin only: a runner would lose its shadow

    def __init__(self, cfg: ManagerBasedRlEnvCfg, num_threads: int | None = None) -> None:
        super().__init__(cfg, scene_model(on_solid_ground(cfg)), num_threads)
        self.robots: Humanoids = Humanoids(task_of(cfg), self.world, seed=cfg.seed or 0)
        self._datas = [mujoco.MjData(self.world.model) for _ in range(self._num_threads)]

    def _move(self, action: Tensor) -> None:
        self.robots.act(action)
        self._physics()

    def _advance(self, thread: int, robots: NDArray[np.int64]) -> None:
        for k in robots:
            self._step_robot(k, self.world.model, self._datas[thread], DECIMATION)


def on_solid_ground(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """With the height field itself where mjlab's environment has planes for it: contacts of another origin."""
    ground = task_of(cfg).ground
    return cfg if ground is None else replace(cfg, scene=replace(cfg.scene, spec_fn=ground.add_field))
