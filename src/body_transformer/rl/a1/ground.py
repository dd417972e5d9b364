"""The ground: a height field in plain MuJoCo, a plane under each of the robot's feelers in MuJoCo Warp.

Some of MuJoCo Warp's (3.11) contacts with a height field have a wrong depth, and robots fly apart. So there the robot
has feelers: its feet, and spheres without mass at knees, calves and the corners of the trunk. Each has a plane to
itself, which is laid before every physics step where the ground is nearest to the feeler. The planes are
geoms of the world body: MuJoCo Warp reads where those are from its memory and never computes it, so we write it there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .kinematics import Legs
from .model import BASE, FEET, LEGS
from .terrain import Terrain

if TYPE_CHECKING:
    from .state import State, World

FIELD, FEELER, PLANE = "ground", "feeler", "plane"
"""Names of geoms; the latter two have numbers or places behind them."""
KNEE_RADIUS, CALF_RADIUS, CORNER_RADIUS = 0.017, 0.01, 0.01
"""m"""
AROUND = ((0.0, 0.0), (0.6, 0.0), (-0.6, 0.0), (0.0, 0.6), (0.0, -0.6))
"""Radii from the centre along x and y, where the ground under a feeler is looked at."""
FAR_BELOW = -1000.0
"""m, where planes wait to be laid."""
HIDDEN = 5
"""Group of geoms that are not drawn."""


# -- in the scene ------------------------------------------------------------------------------------------------------


def add_field(spec: mujoco.MjSpec, terrain: Terrain) -> None:
    """The height field into a scene of plain MuJoCo, and the sun."""
    ground = terrain.heights()
    low, high = float(ground.min()), float(ground.max())
    half = [(b - a) / 2 for a, b in zip(terrain.low, terrain.high, strict=True)]
    middle = [(a + b) / 2 for a, b in zip(terrain.low, terrain.high, strict=True)]
    spec.add_hfield(
        name=FIELD,
        size=[*half, max(high - low, 1e-6), 1.0],
        nrow=ground.shape[1],  # MuJoCo's rows go along y, its columns along x; it scales the heights to [0, 1] itself
        ncol=ground.shape[0],
        userdata=ground.T.ravel().tolist(),
    )
    spec.worldbody.add_geom(
        name=FIELD,
        type=mujoco.mjtGeom.mjGEOM_HFIELD,
        hfieldname=FIELD,
        pos=[*middle, low],
        contype=0,
        conaffinity=1,
        rgba=[0.35, 0.45, 0.35, 1],
    )
    spec.worldbody.add_light(
        name="sun", type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, pos=[0, 0, 5], dir=[0.3, 0.3, -1]
    )


@dataclass(frozen=True)
class Feeler:
    """A sphere of the robot that feels the ground."""

    geom: str
    """Its name, without the robot's."""
    body: str
    pos: tuple[float, float, float]
    """m, in the body's frame."""
    radius: float
    """m"""


def feelers(spec: mujoco.MjSpec, prefix: str = "") -> list[Feeler]:
    """Of a robot: of each leg knee, middle of the calf and foot, then the corners of the trunk's boxes."""
    found = []
    for leg in LEGS:
        foot = spec.geom(f"{prefix}{leg}_foot")
        knee = spec.body(f"{prefix}{leg}_calf").pos
        half = tuple(float(value) / 2 for value in foot.pos)
        found += [
            Feeler(f"{FEELER}_{leg}_knee", f"{leg}_thigh", tuple(map(float, knee)), KNEE_RADIUS),  # type: ignore[arg-type]
            Feeler(f"{FEELER}_{leg}_calf", f"{leg}_calf", half, CALF_RADIUS),  # type: ignore[arg-type]
            Feeler(f"{leg}_foot", f"{leg}_calf", tuple(map(float, foot.pos)), float(foot.size[0])),  # type: ignore[arg-type]
        ]
    for box, sides in ((BASE, (-1, 1)), ("sensor_module", (1,))):  # the module's back is in front of the trunk's face
        geom = spec.geom(f"{prefix}{box}")
        inner = np.asarray(geom.size) - CORNER_RADIUS
        for number, signs in enumerate((x, y, z) for x in sides for y in (-1, 1) for z in (-1, 1)):
            x, y, z = (float(value) for value in np.asarray(geom.pos) + inner * signs)
            found.append(Feeler(f"{FEELER}_{box}_{number}", BASE, (x, y, z), CORNER_RADIUS))
    return found


def add_planes(spec: mujoco.MjSpec, prefix: str = "robot/") -> None:
    """Feelers and their planes into a scene with the robot."""
    for number, feeler in enumerate(feelers(spec, prefix)):
        if feeler.geom not in FEET:
            spec.body(prefix + feeler.body).add_geom(
                name=prefix + feeler.geom,
                type=mujoco.mjtGeom.mjGEOM_SPHERE,
                pos=feeler.pos,
                size=[feeler.radius, 0, 0],
                mass=0,
                contype=0,
                conaffinity=0,
                group=HIDDEN,
            )
        spec.worldbody.add_geom(
            name=f"{PLANE}{number}",
            type=mujoco.mjtGeom.mjGEOM_PLANE,
            pos=[0, 0, FAR_BELOW],
            size=[1, 1, 1],
            contype=0,
            conaffinity=0,
            group=HIDDEN,
        )
        spec.add_pair(geomname1=f"{PLANE}{number}", geomname2=prefix + feeler.geom, condim=3)


# -- under the robots --------------------------------------------------------------------------------------------------


class Faces:
    """The ground's triangles on a device.

    A cell of the grid is two of them, parted as in MuJoCo by the diagonal along x = y.
    """

    def __init__(
        self, heights: NDArray[np.float64], low: tuple[float, float], grid: float, device: torch.device | str = "cpu"
    ):
        self._low, self._grid, self._shape = low, grid, heights.shape
        self._heights = torch.tensor(heights, dtype=torch.float32, device=device).flatten()
        self._around = torch.tensor(AROUND, device=device)

    def under(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Height and unit normal [..., 3] of the ground at these places; beyond its end the last face goes on."""
        (u, i), (v, j) = (self._cell(place, axis) for axis, place in enumerate((x, y)))
        first = i * self._shape[1] + j
        beside = u > v  # the triangle that has the corner with the larger x
        other = torch.where(beside, first + self._shape[1], first + 1)
        origin, far, third = (self._heights[k] for k in (first, first + self._shape[1] + 1, other))
        slope_x = torch.where(beside, third - origin, far - third) / self._grid
        slope_y = torch.where(beside, far - third, third - origin) / self._grid
        normal = torch.stack([-slope_x, -slope_y, torch.ones_like(slope_x)], -1)
        return origin + u * slope_x + v * slope_y, normal / normal.norm(dim=-1, keepdim=True)

    def nearest(self, centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
        """The plane on which a sphere, centre [..., 3], lies or will lie: a point of the ground and a unit normal.

        Of some points of the ground under the sphere it is the nearest to the centre: those straight below the centre
        and AROUND it, and where the perpendiculars on their faces meet the ground. The normal points to the centre: on
        a ridge it is that of the sphere, not that of either face, and the sphere is never deeper than it really is.
        """
        sphere = centre[..., None, :]  # [..., 1, 3]
        below = sphere[..., :2] + self._around * radius[..., None, None]
        point, normal = self._on_ground(below)
        away = ((sphere - point) * normal).sum(-1, keepdim=True)
        away = torch.minimum(torch.maximum(away, -2 * radius[..., None, None]), 2 * radius[..., None, None])
        second, second_normal = self._on_ground((sphere - away * normal)[..., :2])
        point, normal = torch.cat([point, second], -2), torch.cat([normal, second_normal], -2)  # [..., 10, 3]
        return _nearest_of(sphere, point, normal, radius)

    def _on_ground(self, xy: Tensor) -> tuple[Tensor, Tensor]:
        """[..., 2] -> the point of the ground there and its face's normal, [..., 3] each."""
        height, normal = self.under(xy[..., 0], xy[..., 1])
        return torch.cat([xy, height[..., None]], -1), normal

    def _cell(self, place: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        """How far into its cell a place is, m, and the number of the cell; that is in range for NaN, too."""
        along = place - self._low[axis]
        number = (along / self._grid).floor().clamp(0, self._shape[axis] - 2).nan_to_num().long()
        return along - number * self._grid, number


def _nearest_of(sphere: Tensor, point: Tensor, normal: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Of points [..., K, 3] the one nearest to a sphere [..., 1, 3], and the direction from there to its centre.

    Where the centre is at the ground or in it there is no such direction, and the face's normal is taken.
    """
    offset = sphere - point
    distance = offset.norm(dim=-1, keepdim=True)
    first = distance.argmin(-2, keepdim=True)
    chosen = first.expand(*first.shape[:-1], 3)
    point, normal, offset = (each.gather(-2, chosen)[..., 0, :] for each in (point, normal, offset))
    distance = distance.gather(-2, first)[..., 0, :]
    is_above = (distance > radius[..., None] / 2) & ((offset * normal).sum(-1, keepdim=True) > 0)
    return point, torch.where(is_above, offset / distance, normal)


class Planes:
    """The planes of B environments in MuJoCo Warp's memory."""

    def __init__(self, world: World, terrain: Terrain):
        if world.geom_xpos is None or world.geom_xmat is None:
            raise ValueError("planes are laid in MuJoCo Warp only")
        model = world.model
        self._faces = Faces(terrain.heights(), terrain.low, terrain.grid, world.device)
        self._legs = Legs(model, world.device)
        felt_by = dict(zip(model.pair_geom1.tolist(), model.pair_geom2.tolist(), strict=True))
        planes = [int(model.geom(f"{PLANE}{number}").id) for number in range(model.npair)]
        names = [model.geom(felt_by[plane]).name for plane in planes]
        corners = [model.geom(name).pos for name in names if model.geom(name).bodyid == model.body(f"robot/{BASE}").id]
        self._corners = torch.tensor(np.array(corners), dtype=torch.float32, device=world.device)  # [12, 3]
        radius = [float(model.geom(name).size[0]) for name in names]
        self._radius = torch.tensor(radius, dtype=torch.float32, device=world.device)
        mine = slice(planes[0], planes[0] + len(planes))
        assert planes == list(range(mine.start, mine.stop))
        self.point = world.geom_xpos[:, mine]
        """[B, S, 3], m: a point of each feeler's plane."""
        self.normal = world.geom_xmat.view(world.num_envs, -1, 3, 3)[:, mine, :, 2]
        """[B, S, 3]; of a plane's frame a contact knows this axis alone."""

    def feelers(self, state: State) -> Tensor:
        """[B, S, 3], m: where they are, by the state of this very moment."""
        legs = self._legs.points(state.joint_pos).flatten(1, 2)
        corners = self._corners.expand(len(legs), -1, -1)
        return self._legs.in_world(torch.cat([legs, corners], 1), state)

    def lay(self, state: State) -> None:
        """Before a physics step: every plane to its feeler."""
        point, normal = self._faces.nearest(self.feelers(state), self._radius)
        self.point.copy_(point)
        self.normal.copy_(normal)
