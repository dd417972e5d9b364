"""Learning curves: the seeds of an arm as one line with a band, thinned for drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from .arms import Arm
from .runs import Point

Floats = npt.NDArray[np.float64]
Axis = Literal["step", "env_steps", "time_s"]
"""What a curve is drawn by: one of the places that a point has."""

MAX_POINTS = 500
"""Of a drawn curve: more than a screen can show apart."""


@dataclass(frozen=True)
class Curve:
    """[K] each: where, the line, and the band around it."""

    at: Floats
    mean: Floats
    low: Floats
    high: Floats

    @property
    def has_band(self) -> bool:
        return bool((self.high > self.low).any())


def curve(arm: Arm, key: str, by: Axis = "step") -> Curve | None:
    """The mean over the seeds, between the lowest and the highest; of one seed, its values and their intervals.

    Where seeds were logged at different places, each is interpolated between its own; beyond its end a seed no longer
    counts. None if nothing was logged under this name.
    """
    seeds = [places(run.curves[key], by) for run in arm.runs if key in run.curves]
    seeds = [seed for seed in seeds if len(seed.at)]
    if not seeds:
        return None
    if len(seeds) == 1:
        return thinned(seeds[0])
    at = np.unique(np.concatenate([seed.at for seed in seeds]))
    values = np.stack([np.interp(at, seed.at, seed.mean, left=np.nan, right=np.nan) for seed in seeds])
    there = ~np.isnan(values)
    at, values, there = (part[..., there.any(axis=0)] for part in (at, values, there))
    mean = np.where(there, values, 0.0).sum(axis=0) / there.sum(axis=0)
    return thinned(Curve(at, mean, np.nanmin(values, axis=0), np.nanmax(values, axis=0)))


def places(points: Sequence[Point], by: Axis = "step") -> Curve:
    """One seed's points as arrays; those whose place is not known are left out."""
    points = [point for point in points if getattr(point, by) is not None]
    at = np.array([getattr(point, by) for point in points], dtype=np.float64)
    mean, low, high = (
        np.array([getattr(point.value, part) for point in points], dtype=np.float64) for part in ("mean", "low", "high")
    )
    order = np.argsort(at, kind="stable")
    return Curve(at[order], mean[order], low[order], high[order])


def thinned(whole: Curve, max_points: int = MAX_POINTS) -> Curve:
    """At most so many points; the ends stay, and of every stretch the peaks and dips of line and band."""
    if len(whole.at) <= max_points:
        return whole
    ids = kept(whole, max_points)
    return Curve(whole.at[ids], whole.mean[ids], whole.low[ids], whole.high[ids])


def kept(whole: Curve, max_points: int) -> npt.NDArray[np.int64]:
    """Which points these are."""
    count = len(whole.at)
    if count <= max_points:
        return np.arange(count)
    keep = {0, count - 1}
    for stretch in np.array_split(np.arange(count), (max_points - 2) // 4):
        keep |= {
            int(stretch[0] + offset)
            for offset in (
                whole.mean[stretch].argmin(),
                whole.mean[stretch].argmax(),
                whole.low[stretch].argmin(),
                whole.high[stretch].argmax(),
            )
        }
    return np.array(sorted(keep))
