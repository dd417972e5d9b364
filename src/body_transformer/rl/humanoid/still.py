"""Pictures of the humanoid tasks, drawn by MuJoCo on the CPU.

    python -m body_transformer.rl.humanoid.still docs/images

writes a still frame of each task, at the start of an episode, into that folder.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
from mjlab.envs import ManagerBasedRlEnvCfg
from PIL import Image

from ...files import atomic_write
from ...video import Frame, View, render
from ..plain import scene_model
from ..registry import TASKS, make_env_cfg
from .resets import draw_starts
from .task import task_of

VIEW = View(body="robot/torso", below_m=0.4)


def frame(cfg: ManagerBasedRlEnvCfg, view: View = VIEW) -> Frame:
    """[height, width, 3]: a start of the configuration's seed."""
    model = scene_model(cfg)
    qpos, _ = draw_starts(model, task_of(cfg).place, np.random.default_rng(cfg.seed), count=1)
    return render(model, qpos, view)[0]


def main(folder: Path) -> None:
    for name in [name for name, module in TASKS.items() if module.startswith("humanoid.")]:
        picture = Image.fromarray(frame(make_env_cfg(name, num_envs=1, seed=0)))
        print(atomic_write(folder / f"{name}.png", partial(picture.save, optimize=True)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
