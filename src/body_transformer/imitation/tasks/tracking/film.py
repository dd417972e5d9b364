"""Films of the tracking task: the policy's body on the left, its reference on the right."""

from __future__ import annotations

import mujoco
import numpy as np
from PIL import Image, ImageDraw

from ....video import Frame, View, render
from .model import HANDS, pinned_spec
from .motions import Doubles, TrackingStart

WIDTH, HEIGHT = 320, 240
VIEW_M = 2.5
"""Height of the picture: a stretched humanoid, in any tilt."""
AZIMUTH_DEG, ELEVATION_DEG = 150.0, -12.0
"""Viewing direction: the bodies face the camera, seen slightly from the side and from above."""
MIDDLE = np.array([0.0, 0.0, -0.4])
"""Point between head and feet in the torso's frame, which stays in the middle of the picture in any tilt."""
CENTRE = "centre"
CENTRE_M = 1.1
"""Name and height above the floor of the body at the middle of the picture."""
APART_M = 1.5
COLORS = {"policy": (0.91, 0.49, 0.20), "reference": (0.47, 0.60, 0.72)}
SKY, FLOOR = (0.96, 0.97, 0.98), (0.85, 0.85, 0.83)
HORIZON = 0.82
"""Fraction of the picture above the floor, in pictures without OpenGL."""
LOAD_COLOR = (0.22, 0.22, 0.26)
LOAD_DENSITY = 1000.0
"""kg/m³: a load is drawn as a ball of water of its mass if that is larger than the hand."""


def film(start: TrackingStart, poses: Doubles, reference: Doubles) -> list[Frame]:
    """Return pictures of joint positions [T, J], by MuJoCo's renderer or, without OpenGL, as plain shapes."""
    try:
        return rendered(start, poses, reference)
    except ValueError:  # MuJoCo cannot render on this machine
        return drawn(start, poses, reference)


def rendered(start: TrackingStart, poses: Doubles, reference: Doubles) -> list[Frame]:
    """Return pictures by MuJoCo's renderer; raise ValueError without OpenGL."""
    # In an orthographic projection the distance changes no size: beyond the bodies, above the floor.
    view = View(CENTRE, 0.0, 4.0, AZIMUTH_DEG, ELEVATION_DEG, width=WIDTH, height=HEIGHT)
    return render(Stage(start).model, np.concatenate([poses, reference], 1), view)


def drawn(start: TrackingStart, poses: Doubles, reference: Doubles) -> list[Frame]:
    """Return pictures that Pillow draws: each capsule is a thick line with round ends."""
    stage = Stage(start)
    return [_draw(*stage.capsules(*both)) for both in zip(poses, reference, strict=True)]


class Stage:
    """Two humanoids in front of a camera, with equal tilt and loads: the policy's and the reference."""

    def __init__(self, start: TrackingStart) -> None:
        scene = mujoco.MjSpec()
        disc = mujoco.mjtGeom.mjGEOM_CYLINDER
        scene.worldbody.add_geom(name="floor", type=disc, size=(1.6, 0.005, 0), rgba=(*FLOOR, 1))
        scene.worldbody.add_body(name=CENTRE, pos=(0, 0, CENTRE_M))
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
        view.orthographic, view.fovy = 1, VIEW_M  # without perspective both bodies are seen from the same side
        self.model = scene.compile()
        self.data = mujoco.MjData(self.model)
        for side, (name, color) in zip((-0.5, 0.5), COLORS.items(), strict=True):
            self._place(name, color, start, side * APART_M)

    def capsules(self, policy: Doubles, reference: Doubles) -> tuple[Doubles, Doubles, Doubles]:
        """Return both bodies in these joint positions [J] as capsules; a sphere is a capsule of length 0.

        The arrays are the ends [G, 2, 3], radii [G] and colors [G, 3]. Ends are in the camera's frame: metres to the
        right of the middle, upwards, and towards the camera.
        """
        model, data = self.model, self.data
        data.qpos[:] = np.concatenate([policy, reference])
        mujoco.mj_forward(model, data)
        limbs = np.flatnonzero(model.geom_bodyid)  # all but the floor
        is_capsule = model.geom_type[limbs] == mujoco.mjtGeom.mjGEOM_CAPSULE
        along = data.geom_xmat[limbs].reshape(-1, 3, 3)[:, :, 2] * (model.geom_size[limbs, 1] * is_capsule)[:, None]
        middle = data.geom_xpos[limbs] - np.array([0, 0, CENTRE_M])
        ends = np.stack([middle - along, middle + along], 1) @ view_axes().T
        return ends, model.geom_size[limbs, 0].copy(), model.geom_rgba[limbs, :3].astype(np.float64)

    def _place(self, name: str, color: tuple[float, float, float], start: TrackingStart, aside_m: float) -> None:
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
