"""Uneven ground: a height field for rendering, and tangent planes under the robot for contacts.

MuJoCo tests a geom against each prism under the triangles of a height field separately. Where two prisms meet, it
detects a wall between them, even on flat ground. A foot that is slightly in the ground is pushed sideways by this wall
(internal-edge contacts). A policy that runs on a plane falls on a *flat* height field with cells of 0.1 m
(`benchmarks/height_field.py`). In MuJoCo Warp (3.11), about 1 in 400 such contacts also has a wrong depth, and robots
fly apart.

Robots therefore have feelers. A feeler is a sphere that touches only its own plane. This plane is laid on the ground
before each physics step. The planes are geoms of the world body. MuJoCo Warp reads their poses from its memory and
never computes them, so they are written there. Plain MuJoCo computes them from its model, so they are written into the
model.
`humanoid/ground.py` and `a1/ground.py` place the feelers, predict their positions and choose the planes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from .envs.world import World

FIELD, FEELER, PLANE = "ground", "feeler", "plane"
"""Names of geoms; numbers or places follow the latter two."""
FAR_BELOW = -1000.0
"""Height of planes that are not laid yet, m; even a tilted one does not reach the surface from there."""
UNTOUCHED: dict[str, Any] = {"contype": 0, "conaffinity": 0, "group": 5}
"""Options of geoms that are not drawn and collide only with the other geom of their pair."""


@dataclass(frozen=True)
class Ground:
    """Heights on a square grid; a cell is two triangles, divided as in MuJoCo by the diagonal along x = y."""

    heights: Callable[[], NDArray[np.float64]]
    """Returns the heights at low + grid x (i, j), [nx, ny], m; they are computed on demand."""
    low: tuple[float, float]
    """x and y of the first height, m."""
    grid: float
    """Distance between heights, m."""


def part_around(ground: Ground, xy: NDArray[np.float64], margin: float) -> Ground:
    """Return the ground within `margin` m of the places xy [n, 2], along x and along y."""
    heights, low = ground.heights(), np.array(ground.low)
    first, last = (
        np.clip(np.round((ends - low) / ground.grid).astype(int), 0, np.array(heights.shape) - 1)
        for ends in (xy.min(0) - margin, xy.max(0) + margin)
    )
    x, y = low + ground.grid * first
    part = heights[first[0] : last[0] + 1, first[1] : last[1] + 1]
    return Ground(lambda: part, (float(x), float(y)), ground.grid)


# -- in the scene ------------------------------------------------------------------------------------------------------


def add_field(spec: mujoco.MjSpec, ground: Ground, solid: bool = True) -> None:
    """Add the ground and a sun to a scene; if the ground is not solid, robots pass through it."""
    heights = ground.heights()
    low, high = float(heights.min()), float(heights.max())
    half = [ground.grid * (count - 1) / 2 for count in heights.shape]
    # MuJoCo's rows run along y, its columns along x; it scales the heights to [0, 1]
    spec.add_hfield(
        name=FIELD,
        size=[*half, max(high - low, 1e-6), 1.0],
        nrow=heights.shape[1],
        ncol=heights.shape[0],
        userdata=heights.T.ravel().tolist(),
    )
    spec.worldbody.add_geom(
        name=FIELD,
        type=mujoco.mjtGeom.mjGEOM_HFIELD,
        hfieldname=FIELD,
        pos=[ground.low[0] + half[0], ground.low[1] + half[1], low],
        contype=int(solid),
        conaffinity=int(solid),
        rgba=[0.35, 0.45, 0.35, 1],
    )
    spec.worldbody.add_light(
        name="sun", type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, pos=[0, 0, 5], dir=[0.3, 0.3, -1]
    )


def add_feeler(body: mujoco.MjsBody, name: str, pos: ArrayLike, radius: float) -> None:
    """Add a sphere without mass."""
    body.add_geom(name=name, type=mujoco.mjtGeom.mjGEOM_SPHERE, pos=pos, size=[radius, 0, 0], mass=0, **UNTOUCHED)


def add_plane(spec: mujoco.MjSpec, number: int) -> mujoco.MjsGeom:
    """Add a plane far below."""
    name, pos = f"{PLANE}{number}", [0, 0, FAR_BELOW]
    return spec.worldbody.add_geom(name=name, type=mujoco.mjtGeom.mjGEOM_PLANE, pos=pos, size=[1, 1, 1], **UNTOUCHED)


# -- under the robots --------------------------------------------------------------------------------------------------


class FeelerPlanes:
    """The planes of B environments in the simulator's memory: points and normals to be written to."""

    def __init__(self, world: World) -> None:
        model, device = world.model, world.device
        self._ids = plane_ids(model, model.npair)
        feeler_of = dict(zip(model.pair_geom1.tolist(), model.pair_geom2.tolist(), strict=True))
        feelers = [feeler_of[plane] for plane in range(self._ids.start, self._ids.stop)]
        self.feelers = torch.tensor(feelers, device=device)
        """[count]: the feeler's geom of each plane."""
        self.radius = torch.tensor(model.geom_size[feelers, 0], dtype=torch.float32, device=device)
        """[count], m, of the feelers."""
        self.point = world.geom_xpos[:, self._ids]
        """[B, count, 3], m: a point of each plane."""
        self.normal = world.geom_xmat.view(len(world.geom_xpos), -1, 3, 3)[:, self._ids, :, 2]
        """[B, count, 3]; a contact reads no other axis of a plane's frame."""

    def fit_model(self, k: int, model: mujoco.MjModel) -> None:
        """Write the planes of robot k into a model of plain MuJoCo, before its physics step."""
        put_planes(model, self._ids, self.point[k].numpy(), self.normal[k].numpy())


def plane_ids(model: mujoco.MjModel, count: int) -> slice:
    """Return which geoms the planes are."""
    planes = [model.geom(f"{PLANE}{number}").id for number in range(count)]
    ids = slice(planes[0], planes[0] + count)
    assert planes == list(range(ids.start, ids.stop))
    return ids


def put_planes(model: mujoco.MjModel, ids: slice, point: NDArray[np.float64], normal: NDArray[np.float64]) -> None:
    """Write a point and the normal of each plane, [count, 3] each, into a model of plain MuJoCo.

    Plain MuJoCo, unlike MuJoCo Warp, recomputes the poses of the world's geoms in each step.
    """
    model.geom_sameframe[ids] = mujoco.mjtSameFrame.mjSAMEFRAME_NONE  # the compiled planes have the world's orientation
    model.geom_pos[ids] = point
    x, y, z = normal.T
    quat = np.stack([1 + z, -y, x, np.zeros_like(z)], -1)  # the shortest rotation from upright to the normal
    model.geom_quat[ids] = quat / np.linalg.norm(quat, axis=-1, keepdims=True)
