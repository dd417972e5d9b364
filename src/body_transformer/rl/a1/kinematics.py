"""Where knees and feet are: the A1's legs in closed form.

MuJoCo Warp knows it, too, but of the beginning of its last step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .model import LEGS

if TYPE_CHECKING:
    import mujoco

    from .state import State


class Legs:
    """Lengths of the four legs: hips turn about x, thighs and calves about y, and both point down at angle 0."""

    def __init__(self, model: mujoco.MjModel, device: torch.device | str, prefix: str = "robot/"):
        def pos(part: str) -> Tensor:
            places = [model.body(f"{prefix}{leg}_{part}").pos.tolist() for leg in LEGS]
            return torch.tensor(places, dtype=torch.float32, device=device)

        self._hip = pos("hip")  # [4, 3]
        self._aside = pos("thigh")[:, 1]
        self._thigh = -pos("calf")[:, 2]
        feet = [float(model.geom(f"{prefix}{leg}_foot").pos[2]) for leg in LEGS]
        self._calf = -torch.tensor(feet, dtype=torch.float32, device=device)

    def points(self, joint_pos: Tensor) -> Tensor:
        """joint_pos [B, 12] -> knee, middle of the calf and foot of each leg [B, 4, 3, 3], in the trunk's frame."""
        hip, thigh, calf = joint_pos.view(-1, 4, 3).unbind(-1)
        bend = thigh + calf
        knee_x, knee_z = -self._thigh * thigh.sin(), -self._thigh * thigh.cos()
        calf_x, calf_z = -self._calf * bend.sin(), -self._calf * bend.cos()
        x = torch.stack([knee_x, knee_x + calf_x / 2, knee_x + calf_x], -1)
        z = torch.stack([knee_z, knee_z + calf_z / 2, knee_z + calf_z], -1)
        cos, sin, aside = hip.cos()[..., None], hip.sin()[..., None], self._aside[:, None]
        return torch.stack([x, aside * cos - z * sin, aside * sin + z * cos], -1) + self._hip[:, None]

    @staticmethod
    def in_world(points: Tensor, state: State) -> Tensor:
        """[B, S, 3] from the trunk's frame to the world's."""
        w, axis = state.base_quat[:, None, :1], state.base_quat[:, None, 1:].expand_as(points)
        twice = 2 * torch.cross(axis, points, dim=-1)
        return points + w * twice + torch.cross(axis, twice, dim=-1) + state.base_pos[:, None]
