"""Rotations of vectors, and angles of rotations: B environments, quaternions w x y z."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(quat: Tensor, vector: Tensor) -> Tensor:
    """Rotate vector [B, 3] or [B, S, 3] by the quaternion [B, 4] of its environment: body to world."""
    quat = quat if vector.ndim == 2 else quat[:, None]
    w, axis = quat[..., :1], quat[..., 1:].expand_as(vector)
    twice = 2 * torch.cross(axis, vector, dim=-1)
    return vector + w * twice + torch.cross(axis, twice, dim=-1)


def rotate_back(quat: Tensor, vector: Tensor) -> Tensor:
    """Rotate vector [B, 3] or [B, S, 3] by the inverse of the quaternion [B, 4]: world to body."""
    return rotate(torch.cat([quat[:, :1], -quat[:, 1:]], -1), vector)


def roll(quat: Tensor) -> Tensor:
    """Return the angle about x, [B] in [-pi, pi]."""
    w, x, y, z = quat.unbind(-1)
    return torch.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))


def pitch(quat: Tensor) -> Tensor:
    """Return the angle about y, [B] in [-pi/2, pi/2]."""
    w, x, y, z = quat.unbind(-1)
    return torch.asin((2 * (w * y - z * x)).clamp(-1.0, 1.0))


def yaw(quat: Tensor) -> Tensor:
    """Return the angle about z, [B] in [-pi, pi]."""
    w, x, y, z = quat.unbind(-1)
    return torch.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
