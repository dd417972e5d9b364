"""The humanoid tasks in plain MuJoCo."""

from __future__ import annotations

from dataclasses import replace

import mujoco
from mjlab.envs import ManagerBasedRlEnvCfg
from torch import Tensor

from ..plain import PlainRobots, scene_model
from .model import CONTROL_DT, DECIMATION
from .still import VIEW
from .task import MAX_STEPS, Humanoids, task_of, with_task


class PlainEnv(PlainRobots):
    """Humanoids; action [B, 21], observations [B, 100]."""

    max_steps, control_dt = MAX_STEPS, CONTROL_DT
    view = replace(VIEW, shadows=False)  # the sun shines around the origin only: a runner would lose its shadow

    def __init__(self, cfg: ManagerBasedRlEnvCfg, num_threads: int | None = None) -> None:
        task = task_of(cfg)
        super().__init__(cfg, scene_model(cfg), num_threads, planes=task.ground is not None)
        self.robots: Humanoids = Humanoids(task, self.world, seed=cfg.seed or 0)

    def _move(self, action: Tensor) -> None:
        self.robots.act(action)
        for number in range(DECIMATION):
            if number:
                self.robots.go_on()
            self._physics()

    def _fit(self, k: int, model: mujoco.MjModel) -> None:
        if self.robots.planes is not None:
            self.robots.planes.put(k, model)


def on_height_field(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """Uneven ground as MuJoCo's own height field, to compare: feet are caught there by edges that are not there."""
    task = task_of(cfg)
    assert task.ground is not None
    solid = replace(cfg, scene=replace(cfg.scene, spec_fn=task.ground.add_field))
    return with_task(solid, replace(task, ground=None))
