"""Results of evaluation rollouts: means with bootstrap intervals, as log lines and as evaluation.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..files import atomic_write
from ..run import EVALUATION, Run

NUM_RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95 % confidence interval (percentile bootstrap over episodes)."""

    mean: float
    low: float
    high: float
    num_episodes: int


Summary = dict[str, dict[str, Estimate]]
"""Split -> metric -> estimate."""


def estimate(values: Sequence[float], seed: int = 0) -> Estimate:
    """Return the mean and interval of at least one value."""
    if not values:
        raise ValueError("an estimate needs at least one value; got none")
    array = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(seed).integers(len(array), size=(NUM_RESAMPLES, len(array)))
    low, high = np.quantile(array[draws].mean(1), (0.025, 0.975))
    return Estimate(float(array.mean()), float(low), float(high), len(array))


def summarize(results: Sequence[object], metrics: Sequence[str]) -> dict[str, Estimate]:
    """Return the estimate of each metric over the rollouts."""
    return {name: estimate([float(getattr(result, name)) for result in results]) for name in metrics}


def to_metrics(found: Summary) -> dict[str, dict[str, float]]:
    """Return eval/<split>/<metric> -> estimate, as metrics.jsonl holds it."""
    return {
        f"eval/{split}/{name}": asdict(value) for split, metrics in found.items() for name, value in metrics.items()
    }


def to_json(found: Summary, num_episodes: int, seed: int) -> dict[str, object]:
    """Return the content of evaluation.json."""
    splits = {split: {name: asdict(value) for name, value in metrics.items()} for split, metrics in found.items()}
    return {"splits": splits, "num_episodes": num_episodes, "seed": seed}


def write_evaluation(run: Run, found: Summary, num_episodes: int, seed: int) -> None:
    """Write evaluation.json, which marks the run as finished: everything else must be on disk before."""
    run.check_there()
    atomic_write(run.folder / EVALUATION, json.dumps(to_json(found, num_episodes, seed), indent=1) + "\n")
