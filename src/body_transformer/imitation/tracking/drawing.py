"""Pictures without OpenGL: capsules, drawn one after the other into a depth buffer."""

from __future__ import annotations

import numpy as np

from ...video import Frame
from .clips import Doubles
from .stage import FLOOR, HEIGHT, SKY, VIEW_M, WIDTH, Shapes

PIXELS_A_METRE = HEIGHT / VIEW_M
HORIZON = 0.82
"""How far down the picture the floor begins."""
LIGHT = np.array([-0.4, 0.7, 0.6]) / np.linalg.norm([-0.4, 0.7, 0.6])
"""From the left, from above and from behind the camera: right, up, towards it."""


def draw_picture(shapes: Shapes) -> Frame:
    """The bodies before sky and floor."""
    picture = np.where((np.arange(HEIGHT) < HORIZON * HEIGHT)[:, None, None], SKY, FLOOR) * np.ones((1, WIDTH, 1))
    depth = np.full((HEIGHT, WIDTH), -np.inf)
    for (start, end), radius, color in zip(shapes.ends, shapes.radii, shapes.colors, strict=True):
        _draw_capsule(picture, depth, start, end, float(radius), color)
    return np.round(255 * np.clip(picture, 0, 1)).astype(np.uint8)


def _draw_capsule(
    picture: Doubles, depth: Doubles, start: Doubles, end: Doubles, radius: float, color: Doubles
) -> None:
    """Seen from far away; changes the picture and the depth where the capsule is the nearest."""
    rows, columns = _box(start, end, radius)
    right = ((np.arange(columns.start, columns.stop) + 0.5) - WIDTH / 2) / PIXELS_A_METRE  # [W]
    up = (HEIGHT / 2 - (np.arange(rows.start, rows.stop) + 0.5)) / PIXELS_A_METRE  # [H]
    along = end - start
    flat_sq = max(float(along[:2] @ along[:2]), 1e-12)
    share = ((right - start[0]) * along[0])[None, :] + ((up - start[1]) * along[1])[:, None]
    share = np.clip(share / flat_sq, 0, 1)  # [H, W] where on the axis the nearest point is
    off_right = right[None, :] - start[0] - share * along[0]
    off_up = up[:, None] - start[1] - share * along[1]
    high_sq = radius**2 - off_right**2 - off_up**2  # of the surface, towards the camera
    high = np.sqrt(np.maximum(high_sq, 0))
    near = start[2] + share * along[2] + high
    seen = (high_sq > 0) & (near > depth[rows, columns])
    light = (off_right * LIGHT[0] + off_up * LIGHT[1] + high * LIGHT[2]) / radius
    shade = 0.55 + 0.5 * np.maximum(light, 0)
    picture[rows, columns][seen] = (shade[..., None] * color)[seen]
    depth[rows, columns][seen] = near[seen]


def _box(start: Doubles, end: Doubles, radius: float) -> tuple[slice, slice]:
    """The rows and columns that hold the capsule; empty if it is outside the picture."""
    low, high = np.minimum(start, end) - radius, np.maximum(start, end) + radius

    def within(first: float, last: float, size: int) -> slice:
        begin = int(np.clip(np.floor(size / 2 + first * PIXELS_A_METRE), 0, size))
        return slice(begin, int(np.clip(np.ceil(size / 2 + last * PIXELS_A_METRE), begin, size)))

    return within(-high[1], -low[1], HEIGHT), within(low[0], high[0], WIDTH)
