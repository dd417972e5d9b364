"""Irregular ground: gradient noise (Perlin 2002) of a different height on each track."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from ..ground import Ground

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Terrain:
    """Tracks side by side in a border, x from -border, y about 0. Heights are about 0 and follow from the seed."""

    seed: int
    num_tracks: tuple[int, int] = (20, 50)
    """Along x, along y."""
    track: tuple[float, float] = (2.0, 1.6)
    """m, along x, along y."""
    border: float = 5.0
    """m"""
    scale: tuple[float, float] = (0.08, 0.15)
    """Range of the height scale of a track, m; a track's noise spans about its scale."""
    flat_below: float = 0.1
    """m: tracks of a smaller scale are flat."""
    border_scale: float = 0.08
    """m"""
    grid: float = 0.025
    """Distance between heights, m."""
    per_m: int = 10
    """Cells of the noise per metre."""
    octaves: int = 2
    gain: float = 0.25
    """Height of an octave relative to the octave before, which has half the cells."""

    @property
    def low(self) -> tuple[float, float]:
        """x and y of the first height, m."""
        return -self.border, -self.num_tracks[1] * self.track[1] / 2 - self.border

    @property
    def high(self) -> tuple[float, float]:
        """x and y of the last height, m."""
        return self.num_tracks[0] * self.track[0] + self.border, -self.low[1]

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Heights along x, along y."""
        nx, ny = (round((high - low) / self.grid) + 1 for low, high in zip(self.low, self.high, strict=True))
        return nx, ny

    def scales(self) -> Array:
        """Return the height scale of each track, [along x, along y], m; 0 for a flat one."""
        rng = np.random.default_rng([self.seed, 0xA1])  # not the numbers that the starts are drawn with
        drawn = rng.uniform(*self.scale, self.num_tracks)
        return np.where(drawn < self.flat_below, 0.0, drawn)

    @property
    def ground(self) -> Ground:
        return Ground(partial(heights, self), self.low, self.grid)

    def _noise(self) -> Array:
        """Return noise of a span of about 1, [nx, ny]."""
        rng = np.random.default_rng([self.seed, 0xA2])
        noise = np.zeros(self.shape)
        for octave in range(self.octaves):
            samples = round(1 / (self.grid * self.per_m * 2**octave))
            noise += self.gain**octave / 2 * gradient_noise(self.shape, samples, rng)
        return noise

    def _scale_of_each_height(self) -> Array:
        out = np.full(self.shape, self.border_scale)
        edge = round(self.border / self.grid)
        per = [round(size / self.grid) for size in self.track]
        tracks = self.scales().repeat(per[0], 0).repeat(per[1], 1)
        out[edge : edge + tracks.shape[0], edge : edge + tracks.shape[1]] = tracks
        return out


@lru_cache(maxsize=1)
def heights(terrain: Terrain) -> Array:
    """Return the read-only heights of a ground, [nx, ny], m; cached, because starts and planes need them."""
    found = terrain._noise() * terrain._scale_of_each_height()
    found.setflags(write=False)
    return found


def gradient_noise(shape: tuple[int, int], samples: int, rng: np.random.Generator) -> Array:
    """Return Perlin's noise on cells of `samples` x `samples` values, [nx, ny] in [-1, 1]; 0 at their corners."""
    cells = [-(-count // samples) for count in shape]
    angle = rng.uniform(0, 2 * np.pi, (cells[0] + 1, cells[1] + 1))
    slope_x, slope_y = np.cos(angle), np.sin(angle)
    out = np.zeros((cells[0] * samples, cells[1] * samples))
    for i in range(samples):
        for j in range(samples):
            x, y = i / samples, j / samples
            corners = [
                slope_x[a : a + cells[0], b : b + cells[1]] * (x - a)
                + slope_y[a : a + cells[0], b : b + cells[1]] * (y - b)
                for a in (0, 1)
                for b in (0, 1)
            ]
            low, high = (_between(corners[k], corners[k + 1], y) for k in (0, 2))
            out[i::samples, j::samples] = _between(low, high, x)
    whole: Array = np.sqrt(2) * out[: shape[0], : shape[1]]
    return whole


def _between(a: Array, b: Array, t: float) -> Array:
    """Interpolate from a to b, with a smooth derivative at either end."""
    return a + (b - a) * (6 * t**5 - 15 * t**4 + 10 * t**3)


# -- starts ------------------------------------------------------------------------------------------------------------

AHEAD = (0.2, 0.6)
ASIDE = 0.25
"""Place of a start on its track: x from the beginning, y from the middle, m."""
START_ABOVE = 0.42
"""Height of the trunk above the highest point under the robot, m; stretched legs reach 0.38 m."""
REACH = (0.4, 0.25)
"""Reach of the legs from the trunk along x and y, m."""
RUN = 10.0
"""Distance of an episode at 0.5 m/s, m. No start is nearer to the end of the ground."""


def place(rng: np.random.Generator, count: int, terrain: Terrain) -> Array:
    """Return places of the trunk on random tracks with enough ground ahead, [count, 3], m."""
    along = max(1, int((terrain.high[0] - 1.0 - RUN) / terrain.track[0]))
    tracks = rng.integers(0, (min(along, terrain.num_tracks[0]), terrain.num_tracks[1]), (count, 2))
    x = tracks[:, 0] * terrain.track[0] + rng.uniform(*AHEAD, count)
    middle = (tracks[:, 1] + 0.5) * terrain.track[1]
    y = terrain.low[1] + terrain.border + middle + rng.uniform(-ASIDE, ASIDE, count)
    tops = [_top(terrain, at) for at in np.column_stack([x, y])]
    return np.column_stack([x, y, np.array(tops) + START_ABOVE])


MARGIN = 11.0
"""Least distance of a start from the end of the ground if it may be anywhere, m: an episode at 0.5 m/s."""


def place_anywhere(rng: np.random.Generator, count: int, terrain: Terrain) -> Array:
    """Return places of the trunk anywhere with enough ground around, or in the middle of a small ground."""
    ends = np.array([terrain.low, terrain.high])
    margin = np.minimum(MARGIN, (ends[1] - ends[0]) / 2)
    at = rng.uniform(ends[0] + margin, ends[1] - margin, (count, 2))
    return np.column_stack([at, [_top(terrain, each) + START_ABOVE for each in at]])


def _top(terrain: Terrain, at: Array) -> float:
    """Return the height of the highest point within reach, m."""
    first, last = (
        [max(0, round((at[k] + sign * REACH[k] - terrain.low[k]) / terrain.grid)) for k in (0, 1)] for sign in (-1, 1)
    )
    return float(heights(terrain)[first[0] : last[0] + 1, first[1] : last[1] + 1].max())
