"""Films and pictures of our tasks, rendered in plain MuJoCo.

    python -m body_transformer.rl.film docs/images

writes a picture of each humanoid task at the start of an episode into that folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray
from PIL import Image

from ..files import atomic_write
from ..video import Frame, View, render
from .env_robot import EnvRobot
from .envs.cpu import CpuEnv, scene_model
from .envs.fast import FastEnv
from .envs.mjlab import MjlabEnv, task_of
from .evaluate import Act, rollouts
from .humanoid.robots import draw_starts
from .registry import TASKS, make_env_cfg

STRIDE = 2
"""Steps per frame."""


def film(
    act: Act,
    env: CpuEnv | FastEnv | MjlabEnv,
    seed: int,
    on_done: Callable[[int, int], object] = lambda done, total: None,
) -> tuple[list[Frame], float]:
    """Return frames of the first robot's episode and their rate, Hz; `on_done` gets the number done and the total."""
    poses: list[NDArray[np.float64]] = []
    state: Any = env.world if isinstance(env, CpuEnv) else env.sim.data
    rollouts(act, env, seed, watch=lambda: poses.append(state.qpos[0].double().cpu().numpy().copy()))
    shown = np.stack(poses[::STRIDE])
    if isinstance(env, CpuEnv):
        model, view, control_dt = env.scenery(shown), env.task.view, env.task.control_dt
    else:
        model, view, control_dt = env.sim.mj_model, mjlab_view(env), env.step_dt
    frames = render(model, shown, view, lambda done: on_done(done, len(shown)))
    return frames, 1 / (STRIDE * control_dt)


def mjlab_view(env: FastEnv | MjlabEnv) -> View:
    """Return the view of mjlab's own viewer; without a body to follow, that of the robot's root."""
    viewer, robot = env.cfg.viewer, EnvRobot(env)
    entity = viewer.entity_name or robot.name
    body = viewer.body_name or env.scene[entity].body_names[0]
    return View(
        body=f"{entity}/{body}",
        distance_m=viewer.distance,
        azimuth_deg=viewer.azimuth,
        elevation_deg=viewer.elevation,
        shadows=False,
    )


def picture(name: str) -> Frame:
    """Return a picture of a humanoid task at the start of an episode, [height, width, 3]."""
    cfg = make_env_cfg(name, num_envs=1, seed=0)
    model, task = scene_model(cfg), task_of(cfg)
    qpos, _ = draw_starts(model, task.place, np.random.default_rng(cfg.seed), count=1)
    return render(model, qpos, replace(task.view, shadows=True))[0]


def main(folder: tyro.conf.Positional[Path]) -> None:
    """Write a picture of each humanoid task at the start of an episode into a folder."""
    for name in [name for name, module in TASKS.items() if module.startswith("humanoid.")]:
        shown = Image.fromarray(picture(name))
        print(atomic_write(folder / f"{name}.png", partial(shown.save, optimize=True)))


if __name__ == "__main__":
    tyro.cli(main)
