"""A still frame of a humanoid task at the start of an episode, drawn by MuJoCo on the CPU."""

from __future__ import annotations

import mujoco
import numpy as np
from mjlab.envs import ManagerBasedRlEnvCfg
from mjlab.scene import Scene
from numpy.typing import NDArray

from .resets import draw_starts
from .task import task_of


def scene_model(cfg: ManagerBasedRlEnvCfg) -> mujoco.MjModel:
    """The compiled scene with the task's physics: what `env.sim.mj_model` is, without an environment."""
    model = Scene(cfg.scene, device="cpu").compile()
    cfg.sim.mujoco.apply(model)
    return model


def frame(cfg: ManagerBasedRlEnvCfg, width: int = 640, height: int = 480) -> NDArray[np.uint8]:
    """[height, width, 3]: a start of the configuration's seed. Needs OpenGL (environment variable MUJOCO_GL)."""
    model = scene_model(cfg)
    qpos, _ = draw_starts(model, task_of(cfg).place, np.random.default_rng(cfg.seed), count=1)
    data = mujoco.MjData(model)
    data.qpos[:] = qpos[0]
    mujoco.mj_forward(model, data)
    camera = mujoco.MjvCamera()
    camera.lookat = data.body("robot/torso").xpos - [0, 0, 0.4]
    camera.distance, camera.azimuth, camera.elevation = 4.0, 140.0, -15.0
    with mujoco.Renderer(model, height, width) as renderer:
        renderer.update_scene(data, camera)
        picture: NDArray[np.uint8] = renderer.render()
    return picture
