"""humanoid-hill: humanoid-mod over waves.

The ground has 10 x 20 tiles of 8 x 8 m (x from 0 to 80 m, y from -80 to 80 m) in a flat border of 20 m. Heights are
given every 0.1 m in steps of 5 mm. A tile has n waves, n from {1 … 10}, and an amplitude A from U(0.01, 0.15) m: its
height is A/2 cos(2 pi n y / 8) + A/2 sin(2 pi n x / 8). The waves follow from the seed. An episode begins within 0.5 m
(x and y) of the middle of a tile, 1.34 m above the highest point of the 2 x 2 m there.

Where this differs from the authors' environment, beyond the differences of humanoid-mod:
- Progress is measured from the position of the torso at the last action. The authors' progress jumps by up to 90 with
  each episode, because it is measured from the very first spawn.
- An episode ends by time-out at the end of the ground. Their robots ran off the mesh and fell without end.
- Each episode draws a tile. The authors keep one tile per environment, so a few environments have only a few tiles.
- y is counted from the middle of the ground, so that the target lies ahead.
- The ground acts on feelers along the limbs (see ../ground.py). On a height field, false edges catch the feet, and in
  MuJoCo Warp joints reached 10^7 rad/s.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
from mjlab.envs import ManagerBasedRlEnvCfg
from numpy.typing import NDArray

from ..envs.mjlab import env_cfg, task_of
from ..envs.terms import outside
from ..ground import Ground, add_field
from ..registry import TaskSpec
from . import mod
from .ground import add_planes
from .model import scene
from .robots import HumanoidTask

NUM_TILES = (10, 20)
"""Along x, along y."""
TILE = 8.0
BORDER = 20.0
GRID = 0.1
HEIGHT_STEP = 0.005
LOW = (-BORDER, -NUM_TILES[1] * TILE / 2 - BORDER)
HIGH = (NUM_TILES[0] * TILE + BORDER, NUM_TILES[1] * TILE / 2 + BORDER)
"""The corners of the ground, m."""
EDGE = 1.0
"""Distance from the end of the ground at which an episode ends, m, so that no limb is beyond the ground."""


def heights(seed: int) -> NDArray[np.float64]:
    """Return the heights of the ground at LOW + GRID x (i, j), [1201, 2001], m."""
    rng = np.random.default_rng([seed, 0x5EA])  # not the numbers that the starts are drawn with
    per_tile, border = round(TILE / GRID), round(BORDER / GRID)
    ground = np.zeros(tuple(round((high - low) / GRID) + 1 for low, high in zip(LOW, HIGH, strict=True)))
    along = np.arange(per_tile) * GRID
    for i in range(NUM_TILES[0]):
        for j in range(NUM_TILES[1]):
            phase = 2 * math.pi * rng.integers(1, 11) * along / TILE
            waves = rng.uniform(0.01, 0.15) / 2 * (np.sin(phase)[:, None] + np.cos(phase)[None, :])
            x, y = border + i * per_tile, border + j * per_tile
            ground[x : x + per_tile, y : y + per_tile] = waves
    return np.round(ground / HEIGHT_STEP) * HEIGHT_STEP


def ground(seed: int) -> Ground:
    """Return the ground of that seed."""
    return Ground(partial(heights, seed), LOW, GRID)


def place(rng: np.random.Generator, count: int, seed: int) -> NDArray[np.float64]:
    """Return torso positions on random tiles of the ground of that seed."""
    ground = heights(seed)
    tiles = rng.integers(0, NUM_TILES, (count, 2))
    middle = np.array([0.0, LOW[1] + BORDER]) + (tiles + 0.5) * TILE
    xy = middle + rng.uniform(-0.5, 0.5, (count, 2))
    return np.column_stack([xy, tile_tops(ground)[tiles[:, 0], tiles[:, 1]] + mod.START_Z])


def tile_tops(ground: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the highest point of the 2 x 2 m in the middle of each tile, [10, 20], m."""
    tops = np.zeros(NUM_TILES)
    reach = round(1.0 / GRID)
    for i, j in np.ndindex(NUM_TILES):
        x, y = (round((BORDER + (k + 0.5) * TILE) / GRID) for k in (i, j))
        tops[i, j] = ground[x - reach : x + reach + 1, y - reach : y + reach + 1].max()
    return tops


def task(seed: int) -> HumanoidTask:
    """Return humanoid-hill on the ground of that seed."""
    low, high = ((LOW[0] + EDGE, LOW[1] + EDGE), (HIGH[0] - EDGE, HIGH[1] - EDGE))
    extent = 4.0  # for the camera; by default it would be the size of the ground
    return replace(
        mod.task(),
        time_outs=(partial(outside, low=low, high=high),),
        place=partial(place, seed=seed),
        ground=ground(seed),
        scene=scene(mod.START_Z, spec_fn=partial(add_planes, ground=ground(seed)), extent=extent),
    )


SPEC = TaskSpec(task=task)


def on_height_field(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """Return the configuration with uneven ground as MuJoCo's own height field, which catches feet at inner edges."""
    uneven: HumanoidTask = task_of(cfg)
    assert uneven.ground is not None
    solid = replace(uneven.scene, spec_fn=partial(add_field, ground=uneven.ground))
    return env_cfg(replace(uneven, ground=None, scene=solid), cfg.scene.num_envs, cfg.seed or 0)
