"""Tangent planes under the A1: one under each foot, knee, calf and corner of the trunk (see ../ground.py).

This ground has ridges every few centimetres, as narrow as a foot, so the planes differ from the humanoid's. A plane
goes through the nearest point of several faces, with the normal of the sphere instead of the face. The kinematics of
the legs give the feeler's present position, so no prediction from its last two steps is needed. Faces are computed on
demand: a table of 7 million cells, three times as many as the hills have, would take 230 MB.
"""

from __future__ import annotations

from itertools import product

import mujoco
import numpy as np
import torch
from torch import Tensor

from ..envs.geometry import rotate
from ..envs.world import FreeBody, World
from ..ground import FEELER, PLANE, FeelerPlanes, Ground, add_feeler, add_plane
from .model import BASE, LEGS

KNEE_RADIUS, CALF_RADIUS, CORNER_RADIUS = 0.017, 0.01, 0.01
"""m"""
AROUND = ((0.0, 0.0), (0.6, 0.0), (-0.6, 0.0), (0.0, 0.6), (0.0, -0.6))
"""Points under a feeler at which the ground is read, in radii from its centre along x and y."""


# -- in the scene ------------------------------------------------------------------------------------------------------


def add_planes(spec: mujoco.MjSpec) -> None:
    """Add feelers and their planes to a scene with the robot."""
    for number, feeler in enumerate(_add_feelers(spec)):
        add_plane(spec, number)
        spec.add_pair(geomname1=f"{PLANE}{number}", geomname2=feeler, condim=3)


def _add_feelers(spec: mujoco.MjSpec) -> list[str]:
    """Add feelers at knee and middle of the calf of each leg, and at the corners of the trunk's boxes.

    Return the names of all feelers. The feet are feelers, too.
    """
    names = []
    for leg in LEGS:
        thigh, calf = (spec.body(f"robot/{leg}_{part}") for part in ("thigh", "calf"))
        knee, middle, foot = f"robot/{FEELER}_{leg}_knee", f"robot/{FEELER}_{leg}_calf", f"robot/{leg}_foot"
        add_feeler(thigh, knee, calf.pos, KNEE_RADIUS)
        add_feeler(calf, middle, spec.geom(foot).pos / 2, CALF_RADIUS)
        names += [knee, middle, foot]
    for box, sides in ((BASE, (-1, 1)), ("sensor_module", (1,))):  # the module's back is in front of the trunk's face
        geom = spec.geom(f"robot/{box}")
        inner = np.asarray(geom.size) - CORNER_RADIUS
        for number, signs in enumerate(product(sides, (-1, 1), (-1, 1))):
            names.append(f"robot/{FEELER}_{box}_{number}")
            add_feeler(spec.body(f"robot/{BASE}"), names[-1], geom.pos + inner * signs, CORNER_RADIUS)
    return names


# -- under the robots --------------------------------------------------------------------------------------------------


class GridFaces:
    """The triangles of the ground; a cell of the grid is two of them, divided by the diagonal along x = y."""

    def __init__(self, ground: Ground, device: torch.device | str = "cpu"):
        heights = ground.heights()
        self._low, self._grid, self._shape = ground.low, ground.grid, heights.shape
        self._heights = torch.tensor(heights, dtype=torch.float32, device=device).flatten()
        self._around = torch.tensor(AROUND, device=device)

    def under(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return height and unit normal [..., 3] of the ground at these places.

        Beyond the ground, its outermost faces continue.
        """
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
        """Return the plane that a sphere, centre [..., 3], touches or will touch: a point and a unit normal.

        The point is the nearest of several. Some lie straight below the centre and AROUND it. The others are those in
        which the perpendiculars on their faces meet the ground. The normal points to the centre. On a ridge it is thus
        the normal of the sphere, not of either face, and the depth of the sphere is never overestimated.
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
        """Return the point of the ground at xy [..., 2] and the normal of its face, [..., 3] each."""
        height, normal = self.under(xy[..., 0], xy[..., 1])
        return torch.cat([xy, height[..., None]], -1), normal

    def _cell(self, place: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        """Return the distance into the cell of a place, m, and the cell's number, in range even for NaN."""
        along = place - self._low[axis]
        number = (along / self._grid).floor().clamp(0, self._shape[axis] - 2).nan_to_num().long()
        return along - number * self._grid, number


def _nearest_of(sphere: Tensor, point: Tensor, normal: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Return the point of [..., K, 3] nearest to a sphere [..., 1, 3], and the direction from there to its centre.

    Where the centre is at the ground or below it, that direction is replaced by the normal of the face.
    """
    offset = sphere - point
    distance = offset.norm(dim=-1, keepdim=True)
    first = distance.argmin(-2, keepdim=True)
    chosen = first.expand(*first.shape[:-1], 3)
    point, normal, offset = (each.gather(-2, chosen)[..., 0, :] for each in (point, normal, offset))
    distance = distance.gather(-2, first)[..., 0, :]
    is_above = (distance > radius[..., None] / 2) & ((offset * normal).sum(-1, keepdim=True) > 0)
    return point, torch.where(is_above, offset / distance, normal)


class Legs:
    """The four legs in closed form: hips turn about x, thighs and calves about y, and both point down at angle 0.

    MuJoCo Warp only has the positions of knees and feet before its last step.
    """

    def __init__(self, model: mujoco.MjModel, device: torch.device | str):
        def pos(part: str) -> Tensor:
            places = [model.body(f"robot/{leg}_{part}").pos.tolist() for leg in LEGS]
            return torch.tensor(places, dtype=torch.float32, device=device)

        self._hip = pos("hip")  # [4, 3]
        self._aside = pos("thigh")[:, 1]
        self._thigh = -pos("calf")[:, 2]
        feet = [float(model.geom(f"robot/{leg}_foot").pos[2]) for leg in LEGS]
        self._calf = -torch.tensor(feet, dtype=torch.float32, device=device)

    def points(self, joint_pos: Tensor) -> Tensor:
        """Return knee, middle of the calf and foot of each leg, [B, 4, 3, 3], in the frame of the trunk."""
        hip, thigh, calf = joint_pos.view(-1, 4, 3).unbind(-1)
        bend = thigh + calf
        knee_x, knee_z = -self._thigh * thigh.sin(), -self._thigh * thigh.cos()
        calf_x, calf_z = -self._calf * bend.sin(), -self._calf * bend.cos()
        x = torch.stack([knee_x, knee_x + calf_x / 2, knee_x + calf_x], -1)
        z = torch.stack([knee_z, knee_z + calf_z / 2, knee_z + calf_z], -1)
        cos, sin, aside = hip.cos()[..., None], hip.sin()[..., None], self._aside[:, None]
        return torch.stack([x, aside * cos - z * sin, aside * sin + z * cos], -1) + self._hip[:, None]


class A1Planes(FeelerPlanes):
    """The planes of B A1s, laid where the feelers are."""

    def __init__(self, world: World, ground: Ground):
        super().__init__(world)
        model, device = world.model, world.device
        self._faces, self._legs = GridFaces(ground, device), Legs(model, device)
        corners = [k for k in self.feelers.tolist() if model.geom_bodyid[k] == model.body(f"robot/{BASE}").id]
        feet = [float(model.geom(f"robot/{leg}_foot").size[0]) for leg in LEGS]
        self._foot_radius = torch.tensor(feet, dtype=torch.float32, device=device)
        self._corners = torch.tensor(model.geom_pos[corners], dtype=torch.float32, device=device)  # [12, 3]

    def centres(self, joint_pos: Tensor, trunk: FreeBody) -> Tensor:
        """Return the centres of the feelers, [B, S, 3], m, from joints [B, 12] and the pose of the trunk."""
        legs = self._legs.points(joint_pos).flatten(1, 2)
        corners = self._corners.expand(len(legs), -1, -1)
        return rotate(trunk.quat, torch.cat([legs, corners], 1)) + trunk.pos[:, None]

    def feet(self, joint_pos: Tensor, trunk: FreeBody) -> Tensor:
        """Return the centres of the feet, [B, 4, 3], m."""
        return rotate(trunk.quat, self._legs.points(joint_pos)[:, :, 2]) + trunk.pos[:, None]

    def height(self, feet: Tensor) -> Tensor:
        """Return the heights of feet with these centres above the ground below them, [B, 4], m."""
        ground, _ = self._faces.under(feet[..., 0], feet[..., 1])
        return feet[..., 2] - self._foot_radius - ground

    def lay(self, joint_pos: Tensor, trunk: FreeBody) -> None:
        """Lay every plane under its feeler before a physics step."""
        point, normal = self._faces.nearest(self.centres(joint_pos, trunk), self.radius)
        self.point.copy_(point)
        self.normal.copy_(normal)
