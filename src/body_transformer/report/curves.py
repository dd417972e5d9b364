"""Learning curves over seeds: a line with a band, thinned for drawing, and means with standard errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev, stdev
from typing import Literal

import numpy as np
import numpy.typing as npt

from .aggregate import RunGroup
from .load import LoadedRun, LoggedPoint

Floats = npt.NDArray[np.float64]
CurveAxis = Literal["step", "env_steps", "time_s"]
"""Field of a logged point that gives its place on the horizontal axis."""

MAX_POINTS = 500
"""Maximum number of points of a drawn curve; a screen cannot show more."""

# -- a line with a band ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """A line and the band around it, [K] each."""

    at: Floats
    mean: Floats
    low: Floats
    high: Floats

    @property
    def has_band(self) -> bool:
        return bool((self.high > self.low).any())

    def at_ids(self, ids: npt.NDArray[np.int64]) -> Curve:
        """Return the points with these indices."""
        return Curve(self.at[ids], self.mean[ids], self.low[ids], self.high[ids])


def curve(group: RunGroup, key: str, by: CurveAxis = "step") -> Curve | None:
    """Return the mean over seeds, with a band from the lowest to the highest; for one seed, its values and intervals.

    Seeds that were logged at different steps or times are interpolated, each up to its last point. The result is None
    if nothing was logged under `key`.
    """
    seeds = [points_by(run.curves[key], by) for run in group.runs if key in run.curves]
    seeds = [seed for seed in seeds if len(seed.at)]
    if not seeds:
        return None
    whole = seeds[0]
    if len(seeds) > 1:
        at = np.unique(np.concatenate([seed.at for seed in seeds]))
        values = np.stack([np.interp(at, seed.at, seed.mean, left=np.nan, right=np.nan) for seed in seeds])
        whole = Curve(at, *(over(values, axis=0) for over in (np.nanmean, np.nanmin, np.nanmax)))
    return whole.at_ids(thinned_ids(whole))


def points_by(points: Sequence[LoggedPoint], by: CurveAxis = "step") -> Curve:
    """Return the points of one seed as arrays, without those whose place on the axis is unknown."""
    placed = [(at, point.value) for point in points if (at := getattr(point, by)) is not None]
    placed.sort(key=lambda entry: entry[0])
    return Curve(*np.array([(at, one.mean, one.low, one.high) for at, one in placed], np.float64).reshape(-1, 4).T)


def thinned_ids(whole: Curve, max_points: int = MAX_POINTS) -> npt.NDArray[np.int64]:
    """Return the indices of at most `max_points` points: both ends, and the peaks and dips of line and band in every
    stretch."""
    every = np.arange(len(whole.at))
    if len(every) <= max_points:
        return every
    keep = {0, len(every) - 1}
    lines = ((np.argmin, whole.mean), (np.argmax, whole.mean), (np.argmin, whole.low), (np.argmax, whole.high))
    for stretch in np.array_split(every, (max_points - 2) // 4):
        keep |= {int(stretch[find(line[stretch])]) for find, line in lines}
    return np.array(sorted(keep))


# -- means with standard errors ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeedMean:
    """A mean over seeds."""

    mean: float
    std: float
    """Standard deviation of the seeds."""
    error: float | None
    """Standard error of the mean; None for a single seed."""
    num_seeds: int


@dataclass(frozen=True)
class SeedMeanPoint:
    """An evaluation during training: the mean over the seeds that have it."""

    env_steps: int
    time_s: float
    """Mean training time until then."""
    value: SeedMean


def seed_mean(values: Sequence[float]) -> SeedMean:
    """Return the mean of at least one seed."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return SeedMean(fmean(values), pstdev(values), error, len(values))


def seed_mean_curve(runs: Sequence[LoadedRun], key: str) -> list[SeedMeanPoint]:
    """Return the means by environment steps, at the steps where every run that reached them was evaluated."""
    lines = [line for run in runs if (line := _by_env_steps(run.curves.get(key, ())))]
    found = []
    for steps in sorted({steps for line in lines for steps in line}):
        so_far = [line for line in lines if max(line) >= steps]
        if all(steps in line for line in so_far):
            times, values = zip(*(line[steps] for line in so_far), strict=True)
            found.append(SeedMeanPoint(steps, fmean(times), seed_mean(values)))
    return found


def _by_env_steps(points: Sequence[LoggedPoint]) -> dict[int, tuple[float, float]]:
    """Return (time, value) by environment steps."""
    return {
        point.env_steps: (point.time_s, point.value.mean)
        for point in points
        if point.env_steps is not None and point.time_s is not None
    }
