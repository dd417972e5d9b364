"""Films of the humanoid tasks, from plain MuJoCo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from mjlab.envs import ManagerBasedRlEnvCfg
from numpy.typing import NDArray

from ...films import Frame
from ...films.render import View, pictures
from ..plain import Act, rollouts
from .model import CONTROL_DT
from .plain import PlainEnv
from .still import VIEW

FILM_VIEW = replace(VIEW, shadows=False)  # the sun shines around the origin only: a runner would lose its shadow
STRIDE = 2
"""Every so many steps there is a picture."""
FRAMES_HZ = 1 / (STRIDE * CONTROL_DT)


def film(
    act: Act,
    cfg: ManagerBasedRlEnvCfg,
    seed: int,
    view: View = FILM_VIEW,
    on_done: Callable[[int, int], object] = lambda done, total: None,
) -> list[Frame]:
    """The episode of the configuration's first robot; `on_done` hears how many pictures of how many there are."""
    env = PlainEnv(cfg)
    poses: list[NDArray[np.float64]] = []
    try:
        rollouts(act, env, seed, watch=lambda: poses.append(env.world.qpos[0].numpy().copy()))
    finally:
        env.close()
    shown = np.stack(poses[::STRIDE])
    return pictures(env.world.model, shown, view, lambda done: on_done(done, len(shown)))
