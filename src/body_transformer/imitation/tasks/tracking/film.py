"""Films of the tracking task: the policy's body on the left, its reference on the right.

Pillow draws each capsule as a thick line with round ends, so a film needs no OpenGL and no graphics card.
"""

from __future__ import annotations

import copy

import mujoco
import numpy as np
from PIL import Image, ImageDraw

from ....video import Frame
from .model import HANDS, pinned_model
from .motions import Doubles, TrackingStart

WIDTH, HEIGHT = 320, 240
VIEW_M = 2.5
"""Height of the picture, enough for a stretched humanoid in any tilt."""
AZIMUTH_DEG, ELEVATION_DEG = 150.0, -12.0
"""Viewing direction: the bodies face the camera, which is slightly to the side and above."""
MIDDLE = np.array([0.0, 0.0, -0.4])
"""Point between head and feet in the torso's frame, which stays in the middle of the picture in any tilt."""
ASIDE_M = {"policy": -0.75, "reference": 0.75}
"""Distance of each body to the right of the middle."""
COLORS = {"policy": (0.91, 0.49, 0.20), "reference": (0.47, 0.60, 0.72)}
SKY, FLOOR = (0.96, 0.97, 0.98), (0.85, 0.85, 0.83)
HORIZON = 0.82
"""Fraction of the picture above the floor."""
LOAD_COLOR = (0.22, 0.22, 0.26)
LOAD_DENSITY = 1000.0
"""kg/m³, that of water: a load is drawn as a ball of this density if that is larger than the hand."""


def film(start: TrackingStart, poses: Doubles, reference: Doubles) -> list[Frame]:
    """Return one picture per step, given joint positions [T, J] of the policy's body and of its reference."""
    figures = [Figure(start, "policy"), Figure(start, "reference")]
    radii = np.concatenate([figure.radii for figure in figures])
    colors = np.concatenate([figure.colors for figure in figures])
    frames = []
    for both in zip(poses, reference, strict=True):
        ends = np.concatenate([figure.ends(pose) for figure, pose in zip(figures, both, strict=True)])
        frames.append(_draw(ends, radii, colors))
    return frames


class Figure:
    """A humanoid as capsules in front of the camera, with the tilt and loads of a start."""

    def __init__(self, start: TrackingStart, name: str) -> None:
        self._model = copy.copy(pinned_model())
        self._data = mujoco.MjData(self._model)
        middle = np.zeros(3)
        mujoco.mju_rotVecQuat(middle, MIDDLE, start.torso_quat)
        torso = self._model.body("torso")
        torso.quat[:], torso.pos[:] = start.torso_quat, ASIDE_M[name] * view_axes()[0] - middle
        self.radii = self._model.geom_size[:, 0].copy()
        """[G] m"""
        self.colors = np.tile(COLORS[name], (len(self.radii), 1))
        """[G, 3] from 0 to 1"""
        for hand, payload_kg in zip(HANDS, start.payloads_kg, strict=True):
            geom = self._model.geom(hand).id
            self.radii[geom] = max(self.radii[geom], (payload_kg / LOAD_DENSITY * 3 / (4 * np.pi)) ** (1 / 3))
            self.colors[geom] = LOAD_COLOR

    def ends(self, pose: Doubles) -> Doubles:
        """Return the ends [G, 2, 3] of the capsules for joint positions [J]; those of a sphere are the same point.

        They are in the camera's frame: metres to the right of the middle, upwards, and towards the camera.
        """
        model, data = self._model, self._data
        data.qpos[:] = pose
        mujoco.mj_kinematics(model, data)
        half = model.geom_size[:, 1] * (model.geom_type == mujoco.mjtGeom.mjGEOM_CAPSULE)
        along = data.geom_xmat.reshape(-1, 3, 3)[:, :, 2] * half[:, None]
        return np.stack([data.geom_xpos - along, data.geom_xpos + along], 1) @ view_axes().T


def view_axes() -> Doubles:
    """Return the camera's axes in the world, [3, 3]: right, up and towards the camera."""
    azimuth, elevation = np.deg2rad([AZIMUTH_DEG, ELEVATION_DEG])
    flat = np.array([np.cos(azimuth), np.sin(azimuth), 0])
    forward = np.cos(elevation) * flat + np.array([0, 0, np.sin(elevation)])
    right = np.array([np.sin(azimuth), -np.cos(azimuth), 0])
    return np.stack([right, np.cross(right, forward), -forward])


def _draw(ends: Doubles, radii: Doubles, colors: Doubles) -> Frame:
    """Draw the capsules from back to front, at twice the size to smooth their edges."""
    width, height = 2 * WIDTH, 2 * HEIGHT
    scale = height / VIEW_M  # pixels per metre
    picture = Image.new("RGB", (width, height), _rgb(SKY))
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, HORIZON * height, width, height), fill=_rgb(FLOOR))
    points = np.array([width / 2, height / 2]) + scale * ends[..., :2] * [1, -1]  # [G, 2, 2]
    for k in np.argsort(ends[..., 2].mean(1)).tolist():
        for outline, shade in ((0.0, 0.75), (2.0, 1.0)):  # the darker outline separates overlapping limbs
            radius, color = scale * float(radii[k]) - outline, _rgb(shade * colors[k])
            draw.line([tuple(point) for point in points[k]], color, round(2 * radius))
            for x, y in points[k].tolist():
                draw.ellipse((x - radius, y - radius, x + radius, y + radius), color)
    return np.asarray(picture.resize((WIDTH, HEIGHT)))


def _rgb(color: object) -> tuple[int, ...]:
    return tuple(np.round(255 * np.asarray(color, dtype=float)).astype(int).tolist())
