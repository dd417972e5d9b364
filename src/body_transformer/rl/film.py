"""Films of our tasks, from plain MuJoCo."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..video import Frame, render
from .plain import Act, PlainRobots, rollouts

STRIDE = 2
"""Every so many steps there is a picture."""


def film(
    act: Act, env: PlainRobots, seed: int, on_done: Callable[[int, int], object] = lambda done, total: None
) -> tuple[list[Frame], float]:
    """The episode of the first robot, and pictures a second; `on_done` hears how many of how many there are."""
    poses: list[NDArray[np.float64]] = []
    rollouts(act, env, seed, watch=lambda: poses.append(env.world.qpos[0].numpy().copy()))
    shown = np.stack(poses[::STRIDE])
    frames = render(env.scenery(shown), shown, env.view, lambda done: on_done(done, len(shown)))
    return frames, 1 / (STRIDE * env.control_dt)
