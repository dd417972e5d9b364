"""What many rollouts say together: means with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

NUM_RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A mean and the interval that holds it with 95 % (percentile bootstrap over episodes)."""

    mean: float
    low: float
    high: float
    num_episodes: int


def estimate(values: Sequence[float], seed: int = 0) -> Estimate:
    """Of at least one value."""
    if not values:
        raise ValueError("an estimate needs at least one value; got none")
    array = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(seed).integers(len(array), size=(NUM_RESAMPLES, len(array)))
    low, high = np.quantile(array[draws].mean(1), (0.025, 0.975))
    return Estimate(float(array.mean()), float(low), float(high), len(array))


def summarize(results: Sequence[object], metrics: Sequence[str]) -> dict[str, Estimate]:
    """Metric -> its mean over the rollouts."""
    return {name: estimate([float(getattr(result, name)) for result in results]) for name in metrics}
