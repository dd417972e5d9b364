"""What uneven grounds share: the height field in a scene, feelers and their planes, and the memory those lie in.

MuJoCo tests a geom against each prism under a height field's triangles separately. Where two of them meet it sees a
wall between them, even on flat ground, and pushes a foot that is a little in the ground sideways (internal-edge
contacts): on a *flat* height field with cells of 0.1 m a policy falls that runs on a plane
(`benchmarks/height_field.py`). In MuJoCo Warp (3.11), besides, about 1 in 400 contacts has a wrong depth, and robots
fly apart.

So robots have feelers: spheres, each with a plane to itself, which is laid on the ground before a physics step. Planes
are geoms of the world body. MuJoCo Warp reads from its memory where those are and never computes it, so that is where
we write it; a plain model is told. Which feelers a robot has, where they will be, and which plane is the right one
there is different from robot to robot and from ground to ground: see `humanoid/ground.py` and `a1/ground.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

FIELD, FEELER, PLANE = "ground", "feeler", "plane"
"""Names of geoms; the latter two have numbers or places behind them."""
FAR_BELOW = -1000.0
"""m, where planes wait to be laid: no plane of a ground's steepness comes up from there to another place of it."""
HIDDEN = 5
"""Group of geoms that are not drawn."""


class Uneven(Protocol):
    """Heights on a square grid; a cell is two triangles, parted as in MuJoCo by the diagonal along x = y."""

    @property
    def low(self) -> tuple[float, float]:
        """x and y of the first height, m."""

    @property
    def grid(self) -> float:
        """m, from one height to the next."""

    def heights(self) -> NDArray[np.float64]:
        """[nx, ny], m: the height at low + grid x (i, j)."""


@dataclass(frozen=True)
class Part:
    """A rectangle of another ground."""

    low: tuple[float, float]
    grid: float
    own: NDArray[np.float64]

    def heights(self) -> NDArray[np.float64]:
        return self.own


def part_around(ground: Uneven, xy: NDArray[np.float64], margin: float) -> Part:
    """What lies within `margin` m of the places xy [n, 2], along x and along y."""
    heights, low = ground.heights(), np.array(ground.low)
    first, last = (
        np.clip(np.round((ends - low) / ground.grid).astype(int), 0, np.array(heights.shape) - 1)
        for ends in (xy.min(0) - margin, xy.max(0) + margin)
    )
    x, y = low + ground.grid * first
    return Part((float(x), float(y)), ground.grid, heights[first[0] : last[0] + 1, first[1] : last[1] + 1])


def add_field(spec: mujoco.MjSpec, ground: Uneven, solid: bool = True) -> None:
    """The ground into the scene, to be touched or only to be seen; and the sun."""
    heights = ground.heights()
    low, high = float(heights.min()), float(heights.max())
    half = [ground.grid * (count - 1) / 2 for count in heights.shape]
    # MuJoCo's rows go along y, its columns along x; it scales the heights to [0, 1] itself
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
    """A sphere without mass that touches nothing but what a pair says."""
    body.add_geom(
        name=name,
        type=mujoco.mjtGeom.mjGEOM_SPHERE,
        pos=pos,
        size=[radius, 0, 0],
        mass=0,
        contype=0,
        conaffinity=0,
        group=HIDDEN,
    )


def add_plane(spec: mujoco.MjSpec, number: int) -> mujoco.MjsGeom:
    """A plane that touches nothing but what a pair says, far below."""
    return spec.worldbody.add_geom(
        name=f"{PLANE}{number}",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        pos=[0, 0, FAR_BELOW],
        size=[1, 1, 1],
        contype=0,
        conaffinity=0,
        group=HIDDEN,
    )


def planes_of(model: mujoco.MjModel, count: int) -> slice:
    """Which of its geoms they are."""
    planes = [model.geom(f"{PLANE}{number}").id for number in range(count)]
    mine = slice(planes[0], planes[0] + count)
    assert planes == list(range(mine.start, mine.stop))
    return mine


def planes_in(geom_xpos: Tensor, geom_xmat: Tensor, mine: slice) -> tuple[Tensor, Tensor]:
    """A point and the normal of each plane, [B, count, 3] each, as the world's memory has them: to be written to.

    Of a plane's frame a contact knows the third axis alone.
    """
    return geom_xpos[:, mine], geom_xmat.view(len(geom_xpos), -1, 3, 3)[:, mine, :, 2]


def put_planes(model: mujoco.MjModel, mine: slice, point: NDArray[np.float64], normal: NDArray[np.float64]) -> None:
    """A point and the normal of each plane, [count, 3] each, into a plain model, whose next step finds them there.

    Plain MuJoCo, unlike MuJoCo Warp, computes in each step where the world's geoms are.
    """
    model.geom_sameframe[mine] = mujoco.mjtSameFrame.mjSAMEFRAME_NONE  # they were compiled upright, as the world is
    model.geom_pos[mine] = point
    x, y, z = normal.T
    quat = np.stack([1 + z, -y, x, np.zeros_like(z)], -1)  # the shortest turn from upright to the normal
    model.geom_quat[mine] = quat / np.linalg.norm(quat, axis=-1, keepdims=True)
