"""Waves: tangent planes under the robot, in MuJoCo Warp and in plain MuJoCo (see ../ground.py).

The robot's feelers lie along the axes of its capsules, with the same radius. A plane lies on the face of the ground
that its feeler is nearest to. One plane a capsule would not do: a foot across a crest rests on its middle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..ground import FAR_BELOW, FEELER, PLANE, add_feeler, add_field, add_plane, planes_in, planes_of, put_planes
from ..world import World
from .model import FEET

FEELERS_ALONG_FOOT = 4
"""7 cm apart; other capsules have one at each end, as what touches the ground with them has fallen anyway."""


@dataclass(frozen=True)
class Ground:
    """Heights on a square grid; a cell is two triangles, parted as in MuJoCo by the diagonal along x = y."""

    heights: Callable[[], NDArray[np.float64]]
    """[nx, ny], m: the height at low + grid x (i, j)."""
    low: tuple[float, float]
    """x and y of the first height, m."""
    grid: float
    """m"""

    def add_field(self, spec: mujoco.MjSpec, solid: bool = True) -> None:
        """The ground into the scene, to be touched or only to be seen; and the sun."""
        add_field(spec, self, solid)

    def add_planes(self, spec: mujoco.MjSpec) -> None:
        """Feelers and their planes into a scene with the robot; the height field is to be seen, not to be touched."""
        self.add_field(spec, solid=False)
        number = 0
        for body in spec.bodies:
            for geom in body.geoms if body.name.startswith("robot/") else []:
                for place in _along(geom, FEELERS_ALONG_FOOT if body.name.removeprefix("robot/") in FEET else 2):
                    _add_feeler(spec, body, geom, place, number)
                    number += 1

    def planes(self, world: World) -> Planes:
        """Those of a world with the scene of `add_planes`."""
        return Planes(world, Faces(self.heights(), self.low, self.grid, world.device))


def _along(geom: mujoco.MjsGeom, count: int) -> NDArray[np.float64]:
    """[count, 3]: from one end of a capsule's axis to the other, in its body's frame; a sphere has only its centre."""
    if geom.type == mujoco.mjtGeom.mjGEOM_SPHERE:
        return np.array([geom.pos])
    if geom.type != mujoco.mjtGeom.mjGEOM_CAPSULE or not np.isfinite(geom.fromto).all():
        raise ValueError(f"geom {geom.name!r} must be a sphere or a capsule from one point to another")
    return np.linspace(geom.fromto[:3], geom.fromto[3:], count)


def _add_feeler(
    spec: mujoco.MjSpec, body: mujoco.MjsBody, geom: mujoco.MjsGeom, place: NDArray[np.float64], number: int
) -> None:
    """A sphere without mass that touches its plane as the geom would touch the ground, and nothing else."""
    add_feeler(body, f"{FEELER}{number}", place, float(geom.size[0]))
    plane = add_plane(spec, number)
    spec.add_pair(
        geomname1=f"{PLANE}{number}",
        geomname2=f"{FEELER}{number}",
        condim=max(plane.condim, geom.condim),
        friction=np.maximum(plane.friction, geom.friction)[[0, 0, 1, 2, 2]],
        solref=(plane.solref + geom.solref) / 2,  # a pair does not mix by itself what its geoms say
        solimp=(plane.solimp + geom.solimp) / 2,
    )


class Faces:
    """The ground's triangles on a device, each as the plane in which it lies."""

    def __init__(
        self, heights: NDArray[np.float64], low: tuple[float, float], grid: float, device: torch.device | str = "cpu"
    ):
        first, second, third, last = heights[:-1, :-1], heights[1:, :-1], heights[1:, 1:], heights[:-1, 1:]
        slopes = (
            np.array([[third - last, last - first], [second - first, third - second]]) / grid
        )  # left of x = y, right
        normals = np.concatenate([-slopes, np.ones_like(slopes[:, :1])], axis=1)
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)  # [2, 3, nx - 1, ny - 1]
        x, y = (start + grid * np.arange(count) for start, count in zip(low, first.shape, strict=True))
        offsets = normals[:, 0] * x[:, None] + normals[:, 1] * y + normals[:, 2] * first
        table = np.concatenate([normals, offsets[:, None]], axis=1).transpose(2, 3, 0, 1)
        self._faces = torch.tensor(table, dtype=torch.float32, device=device)  # [nx - 1, ny - 1, 2, 4]
        """Unit normal n and offset d: points p of the plane have n p = d."""
        self._low, self._grid = torch.tensor(low, dtype=torch.float32, device=device), grid
        self._last_cell = torch.tensor(first.shape, device=device) - 1

    def under(self, xy: Tensor) -> tuple[Tensor, Tensor]:
        """Unit normal [..., 3] and offset [..., 1] of the face at these places; beyond its end the ground goes on."""
        cells = (xy - self._low) / self._grid
        numbers = cells.long().clamp_min(0).minimum(self._last_cell)  # in range for NaN, too
        u, v = (cells - numbers).unbind(-1)
        i, j = numbers.unbind(-1)
        face = self._faces[i, j, (u > v).long()]
        return face[..., :3], face[..., 3:]

    def nearest(self, centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
        """A point of the face that a sphere, centre [..., 3], touches or is about to touch, and the face's normal.

        It is the face under the point where the sphere would touch the face under its centre.
        """
        normal, _ = self.under(centre[..., :2])
        normal, offset = self.under(centre[..., :2] - radius * normal[..., :2])
        return centre - ((centre * normal).sum(-1, keepdim=True) - offset) * normal, normal


class Planes:
    """The planes of B environments in the world's memory."""

    def __init__(self, world: World, faces: Faces):
        assert world.geom_xpos is not None
        assert world.geom_xmat is not None
        model, self._faces = world.model, faces
        count = sum(model.geom(k).name.startswith(FEELER) for k in range(model.ngeom))
        feelers = [model.geom(f"{FEELER}{k}").id for k in range(count)]
        self._geom_xpos, self._feelers = world.geom_xpos, torch.tensor(feelers, device=world.device)
        self._radius = torch.tensor(model.geom_size[feelers, 0], dtype=torch.float32, device=world.device)[:, None]
        self._mine = planes_of(model, count)
        self.point, self.normal = planes_in(world.geom_xpos, world.geom_xmat, self._mine)
        """[B, S, 3] each, of each feeler's plane."""
        self._centre, self._before = (torch.zeros_like(self.point) for _ in range(2))
        """[B, S, 3], m: where feelers were at the beginning of the last physics step, and of the one before."""
        self._age = torch.zeros(world.num_envs, dtype=torch.long, device=world.device)
        """[B]: physics steps of the present episode."""

    def restart(self, fresh: Tensor) -> None:
        """Where `fresh` [B, bool] the robot is elsewhere: there is no ground until that is known."""
        self.point[..., 2].masked_fill_(fresh[:, None], FAR_BELOW)
        self._age.masked_fill_(fresh, 0)

    def note(self) -> None:
        """After a physics step: where the feelers were in it. That is all the simulator knows until the next."""
        self._before.copy_(self._centre)
        torch.index_select(self._geom_xpos, 1, self._feelers, out=self._centre)
        self._age.add_(1)

    def lay(self) -> None:
        """Before a physics step: every plane to where its feeler will be, if it goes on as it did.

        In the first step of an episode nothing is known of it yet; the robot is in the air.
        """
        known, moving = (self._age[:, None, None] > steps for steps in (0, 1))
        ahead = self._centre + (self._centre - self._before).masked_fill(~moving, 0.0)
        point, normal = self._faces.nearest(ahead, self._radius)
        self.point.copy_(torch.where(known, point, self.point))
        self.normal.copy_(torch.where(known, normal, self.normal))

    def put(self, k: int, model: mujoco.MjModel) -> None:
        """Those of robot k into a plain model, before its physics step."""
        put_planes(model, self._mine, self.point[k].numpy(), self.normal[k].numpy())
