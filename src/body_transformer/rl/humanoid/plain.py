"""The humanoid tasks in plain MuJoCo."""

from __future__ import annotations

import copy
from dataclasses import replace

import mujoco
import numpy as np
from mjlab.envs import ManagerBasedRlEnvCfg
from numpy.typing import NDArray
from torch import Tensor

from ..plain import PlainRobots, scene_model
from .model import CONTROL_DT, DECIMATION
from .still import VIEW
from .task import MAX_STEPS, Humanoids, TorqueCfg, task_of


class PlainEnv(PlainRobots):
    """Humanoids; action [B, 21], observations [B, 100]."""

    max_steps, control_dt = MAX_STEPS, CONTROL_DT
    view = replace(VIEW, shadows=False)  # the sun shines around the origin only: a runner would lose its shadow

    def __init__(self, cfg: ManagerBasedRlEnvCfg, num_threads: int | None = None) -> None:
        task = task_of(cfg)
        super().__init__(cfg, scene_model(cfg), num_threads, planes=task.ground is not None)
        self.robots: Humanoids = Humanoids(task, self.world, seed=cfg.seed or 0)
        model = self.world.model
        self._models = [model, *(copy.copy(model) for _ in range(self._num_threads - 1))]
        """One a thread, as each robot has planes of its own."""
        self._datas = [mujoco.MjData(each) for each in self._models]

    def _move(self, action: Tensor) -> None:
        self.robots.act(action)
        for number in range(DECIMATION):
            if number:
                self.robots.go_on()
            self._physics()

    def _advance(self, thread: int, robots: NDArray[np.int64]) -> None:
        model, data, planes = self._models[thread], self._datas[thread], self.robots.planes
        for k in robots:
            if planes is not None:
                planes.put(k, model)
            self._step_robot(k, model, data, num_steps=1)


def on_height_field(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """Uneven ground as MuJoCo's own height field, to compare: feet are caught there by edges that are not there."""
    torque = cfg.actions["torque"]
    assert isinstance(torque, TorqueCfg)
    assert torque.task.ground is not None
    return replace(
        cfg,
        scene=replace(cfg.scene, spec_fn=torque.task.ground.add_field),
        actions={"torque": replace(torque, task=replace(torque.task, ground=None))},
    )
