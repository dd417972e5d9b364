"""Tangent planes under the humanoid on waves (see ../ground.py).

The feelers lie along the axes of the robot's capsules and have the same radius. A plane lies on the face of the ground
that is nearest to its feeler. One plane per capsule is not enough: a foot across a crest rests on its middle.
"""

from __future__ import annotations

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..envs.world import World
from ..ground import FAR_BELOW, FEELER, PLANE, FeelerPlanes, Ground, add_feeler, add_field, add_plane
from .model import FEET

FEELERS_ALONG_FOOT = 4
"""7 cm apart. Other capsules have one at each end: when they touch the ground, the robot has already fallen."""


# -- in the scene ------------------------------------------------------------------------------------------------------


def add_planes(spec: mujoco.MjSpec, ground: Ground) -> None:
    """Add feelers and their planes to a scene with the robot, and the height field for rendering."""
    add_field(spec, ground, solid=False)
    number = 0
    for body in spec.bodies:
        for geom in body.geoms if body.name.startswith("robot/") else []:
            for place in _along(geom, FEELERS_ALONG_FOOT if body.name.removeprefix("robot/") in FEET else 2):
                _add_feeler(spec, body, geom, place, number)
                number += 1


def _along(geom: mujoco.MjsGeom, count: int) -> NDArray[np.float64]:
    """Return places along a capsule's axis in the frame of its body, [count, 3]; of a sphere only the centre."""
    if geom.type == mujoco.mjtGeom.mjGEOM_SPHERE:
        return np.array([geom.pos])
    if geom.type != mujoco.mjtGeom.mjGEOM_CAPSULE or not np.isfinite(geom.fromto).all():
        raise ValueError(f"geom {geom.name!r} must be a sphere or a capsule from one point to another")
    return np.linspace(geom.fromto[:3], geom.fromto[3:], count)


def _add_feeler(
    spec: mujoco.MjSpec, body: mujoco.MjsBody, geom: mujoco.MjsGeom, place: NDArray[np.float64], number: int
) -> None:
    """Add a sphere that touches its plane as the geom would touch the ground, and nothing else."""
    add_feeler(body, f"{FEELER}{number}", place, float(geom.size[0]))
    plane = add_plane(spec, number)
    spec.add_pair(
        geomname1=f"{PLANE}{number}",
        geomname2=f"{FEELER}{number}",
        condim=max(plane.condim, geom.condim),
        friction=np.maximum(plane.friction, geom.friction)[[0, 0, 1, 2, 2]],
        solref=(plane.solref + geom.solref) / 2,  # MuJoCo does not mix the parameters of a pair's geoms
        solimp=(plane.solimp + geom.solimp) / 2,
    )


# -- under the robots --------------------------------------------------------------------------------------------------


class FaceTable:
    """A table of the ground's triangles, each with its plane."""

    def __init__(self, ground: Ground, device: torch.device | str = "cpu"):
        heights, grid = ground.heights(), ground.grid
        first, second, third, last = heights[:-1, :-1], heights[1:, :-1], heights[1:, 1:], heights[:-1, 1:]
        left, right = (third - last, last - first), (second - first, third - second)  # of the diagonal x = y
        slopes = np.array([left, right]) / grid
        normals = np.concatenate([-slopes, np.ones_like(slopes[:, :1])], axis=1)
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)  # [2, 3, nx - 1, ny - 1]
        x, y = (start + grid * np.arange(count) for start, count in zip(ground.low, first.shape, strict=True))
        offsets = normals[:, 0] * x[:, None] + normals[:, 1] * y + normals[:, 2] * first
        table = np.concatenate([normals, offsets[:, None]], axis=1).transpose(2, 3, 0, 1)
        self._faces = torch.tensor(table, dtype=torch.float32, device=device)  # [nx - 1, ny - 1, 2, 4]
        """Unit normal n and offset d: points p of the plane have n p = d."""
        self._low, self._grid = torch.tensor(ground.low, dtype=torch.float32, device=device), grid
        self._last_cell = torch.tensor(first.shape, device=device) - 1

    def under(self, xy: Tensor) -> tuple[Tensor, Tensor]:
        """Return unit normal [..., 3] and offset [..., 1] of the face at xy [..., 2].

        Beyond the ground, its outermost faces continue.
        """
        cells = (xy - self._low) / self._grid
        numbers = cells.long().clamp_min(0).minimum(self._last_cell)  # in range even for NaN
        u, v = (cells - numbers).unbind(-1)
        i, j = numbers.unbind(-1)
        face = self._faces[i, j, (u > v).long()]
        return face[..., :3], face[..., 3:]

    def nearest(self, centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
        """Return a point and the normal of the face that a sphere, centre [..., 3], touches or is about to touch.

        It is the face under the point where the sphere would touch the face under its centre.
        """
        normal, _ = self.under(centre[..., :2])
        normal, offset = self.under(centre[..., :2] - radius * normal[..., :2])
        return centre - ((centre * normal).sum(-1, keepdim=True) - offset) * normal, normal


class LimbPlanes(FeelerPlanes):
    """The planes of B humanoids, laid where the feelers will be if they keep their speed."""

    def __init__(self, world: World, ground: Ground):
        super().__init__(world)
        self._geom_xpos, self._faces = world.geom_xpos, FaceTable(ground, world.device)
        self._centre, self._before = (torch.zeros_like(self.point) for _ in range(2))
        """[B, S, 3], m: positions of the feelers at the beginning of the last physics step, and of the one before."""
        self._age = torch.zeros(world.num_envs, dtype=torch.long, device=world.device)
        """[B]: physics steps of the current episode."""

    def state(self) -> dict[str, Tensor]:
        """Return the planes, and the positions of the feelers from which the next ones are predicted."""
        tensors = {"point": self.point, "normal": self.normal}
        tensors |= {"centre": self._centre, "centre_before": self._before, "age": self._age}
        return {f"planes.{name}": value for name, value in tensors.items()}

    def restart(self, fresh: Tensor) -> None:
        """Remove the ground where `fresh` [B, bool], until the position of the robot there is known."""
        self.point[..., 2].masked_fill_(fresh[:, None], FAR_BELOW)
        self._age.masked_fill_(fresh, 0)

    def note(self) -> None:
        """Store the positions of the feelers after a physics step, from which `lay` predicts the next ones."""
        self._before.copy_(self._centre)
        torch.index_select(self._geom_xpos, 1, self.feelers, out=self._centre)
        self._age.add_(1)

    def lay(self) -> None:
        """Lay every plane before a physics step, except in an episode's first step, when the robot is in the air."""
        known, moving = (self._age[:, None, None] > steps for steps in (0, 1))
        ahead = self._centre + (self._centre - self._before).masked_fill(~moving, 0.0)
        point, normal = self._faces.nearest(ahead, self.radius[:, None])
        self.point.copy_(torch.where(known, point, self.point))
        self.normal.copy_(torch.where(known, normal, self.normal))
