"""The planes of the ground (see ../ground.py): one under each foot, knee, calf and corner of the trunk.

Not as under the humanoid, as this ground has ridges every few centimetres, as sharp as a foot is wide: a plane goes
through the nearest point of several faces, with the sphere's normal, not the face's; it is laid where the feeler is,
by the legs' own kinematics, not where it should be by its last two steps; and faces are made when they are asked for,
as a table of those of 7 million cells, three times as many as the hills have, would take 230 MB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..ground import FEELER, PLANE, add_feeler, add_plane, planes_in, planes_of, put_planes
from .kinematics import Legs
from .model import BASE, FEET, LEGS
from .terrain import Terrain

if TYPE_CHECKING:
    from ..world import World
    from .state import State

KNEE_RADIUS, CALF_RADIUS, CORNER_RADIUS = 0.017, 0.01, 0.01
"""m"""
AROUND = ((0.0, 0.0), (0.6, 0.0), (-0.6, 0.0), (0.0, 0.6), (0.0, -0.6))
"""Radii from the centre along x and y, where the ground under a feeler is looked at."""


# -- in the scene ------------------------------------------------------------------------------------------------------


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
            add_feeler(spec.body(prefix + feeler.body), prefix + feeler.geom, feeler.pos, feeler.radius)
        add_plane(spec, number)
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
    """The planes of B environments in the world's memory."""

    def __init__(self, world: World, terrain: Terrain):
        assert world.geom_xpos is not None
        assert world.geom_xmat is not None
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
        self._mine = planes_of(model, model.npair)
        self.point, self.normal = planes_in(world.geom_xpos, world.geom_xmat, self._mine)
        """[B, S, 3] each, of each feeler's plane."""

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

    def put(self, k: int, model: mujoco.MjModel) -> None:
        """Those of robot k into a plain model, before its physics step."""
        put_planes(model, self._mine, self.point[k].numpy(), self.normal[k].numpy())
