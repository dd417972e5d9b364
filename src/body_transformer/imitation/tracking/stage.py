"""The stage of a film: two humanoids before a camera."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from .clips import Doubles
from .model import HANDS, pinned_spec
from .starts import Start

WIDTH, HEIGHT = 320, 240
VIEW_M = 2.5
"""Height of what is seen: a humanoid stretched out, whichever way it leans."""
AZIMUTH_DEG, ELEVATION_DEG = 150.0, -12.0
"""Where the camera looks to: at bodies that face it, from a little to the side and a little above."""
MIDDLE = np.array([0.0, 0.0, -0.4])
"""Between head and feet, in the torso's frame: it stays in the middle of the picture however the torso leans."""
CENTRE_M = 1.1
"""Height of that above the floor."""
APART_M = 1.5
COLORS = {"policy": (0.91, 0.49, 0.20), "reference": (0.47, 0.60, 0.72)}
SKY, FLOOR = (0.96, 0.97, 0.98), (0.85, 0.85, 0.83)
LOAD_COLOR = (0.22, 0.22, 0.26)
LOAD_DENSITY = 1000.0
"""kg/m³: a payload is drawn as a ball of water of its mass, if that is larger than the hand."""


@dataclass(frozen=True)
class Shapes:
    """Capsules as the camera sees them; a sphere is a capsule of no length."""

    ends: Doubles
    """[G, 2, 3] metres to the right of the middle, upwards, and towards the camera."""
    radii: Doubles
    """[G]"""
    colors: Doubles
    """[G, 3]"""


def view_axes() -> Doubles:
    """[3, 3] right, up and towards the camera, in the world."""
    azimuth, elevation = np.deg2rad([AZIMUTH_DEG, ELEVATION_DEG])
    flat = np.array([np.cos(azimuth), np.sin(azimuth), 0])
    forward = np.cos(elevation) * flat + np.array([0, 0, np.sin(elevation)])
    right = np.array([np.sin(azimuth), -np.cos(azimuth), 0])
    return np.stack([right, np.cross(right, forward), -forward])


class Stage:
    """The policy's body and the reference's, leaning and loaded alike."""

    def __init__(self, start: Start) -> None:
        scene = mujoco.MjSpec()
        disc = mujoco.mjtGeom.mjGEOM_CYLINDER
        scene.worldbody.add_geom(name="floor", type=disc, size=(1.6, 0.005, 0), rgba=(*FLOOR, 1))
        scene.add_texture(
            name="sky",
            type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
            builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
            rgb1=SKY,
            rgb2=SKY,
            width=64,
            height=64,
        )
        light = scene.visual.headlight
        light.ambient, light.diffuse, light.specular = (0.5,) * 3, (0.55,) * 3, (0.1,) * 3
        for name in COLORS:
            body = pinned_spec()
            scene.option.timestep, scene.option.disableflags = body.option.timestep, body.option.disableflags
            scene.attach(body, prefix=f"{name}_", frame=scene.worldbody.add_frame())
        view = scene.visual.global_
        view.offwidth, view.offheight = WIDTH, HEIGHT
        view.orthographic, view.fovy = 1, VIEW_M  # as seen from far away: both bodies from the same side
        self.model = scene.compile()
        self.data = mujoco.MjData(self.model)
        for side, (name, color) in zip((-0.5, 0.5), COLORS.items(), strict=True):
            self._place(name, color, start, side * APART_M)

    def pose(self, policy: Doubles, reference: Doubles) -> None:
        """Takes the joint positions [J] of both."""
        self.data.qpos[:] = np.concatenate([policy, reference])
        mujoco.mj_forward(self.model, self.data)

    def shapes(self, policy: Doubles, reference: Doubles) -> Shapes:
        """Both bodies in this pose."""
        self.pose(policy, reference)
        model, data = self.model, self.data
        limbs = np.flatnonzero(model.geom_bodyid)  # the floor is the world's
        is_capsule = model.geom_type[limbs] == mujoco.mjtGeom.mjGEOM_CAPSULE
        along = data.geom_xmat[limbs].reshape(-1, 3, 3)[:, :, 2] * (model.geom_size[limbs, 1] * is_capsule)[:, None]
        middle = data.geom_xpos[limbs] - np.array([0, 0, CENTRE_M])
        ends = np.stack([middle - along, middle + along], 1) @ view_axes().T
        return Shapes(ends, model.geom_size[limbs, 0].copy(), model.geom_rgba[limbs, :3].astype(np.float64))

    def _place(self, name: str, color: tuple[float, float, float], start: Start, aside_m: float) -> None:
        torso = self.model.body(f"{name}_torso")
        middle = np.zeros(3)
        mujoco.mju_rotVecQuat(middle, MIDDLE, start.torso_quat)
        torso.quat[:] = start.torso_quat
        torso.pos[:] = aside_m * view_axes()[0] + np.array([0, 0, CENTRE_M]) - middle
        for k in range(self.model.ngeom):
            if self.model.geom(k).name.startswith(f"{name}_"):
                self.model.geom_rgba[k, :3] = color
        for hand, payload_kg in zip(HANDS, start.payloads_kg, strict=True):
            geom = self.model.geom(f"{name}_{hand}")
            geom.size[0] = max(geom.size[0], (payload_kg / LOAD_DENSITY * 3 / (4 * np.pi)) ** (1 / 3))
            geom.rgba[:3] = LOAD_COLOR
