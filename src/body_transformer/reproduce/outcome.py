"""What came out of a study's runs, by the statistic that the paper uses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..run import Run
from .study import PARAMETERS, Arm, Study, run_folder

NUM_LAST = 10


@dataclass(frozen=True)
class Value:
    """Over seeds."""

    mean: float
    std: float
    """Between seeds, or for maximum-and-mean between evaluations, averaged over seeds."""
    maximum: float | None
    """The best evaluation, averaged over seeds."""
    num_seeds: int


def value_of(study: Study, arm: Arm, metric: str, split: str, out: Path, num_seeds: int) -> Value | None:
    """None as long as no seed of the arm has been evaluated."""
    series = [scores for seed in range(num_seeds) if (scores := evaluations(run_folder(out, arm, seed), metric, split))]
    if not series:
        return None
    if study.statistic == "last-ten":
        series = [scores[-NUM_LAST:] for scores in series]
    means = [float(np.mean(scores)) for scores in series]
    if study.statistic == "maximum-and-mean":
        spread = float(np.mean([np.std(scores) for scores in series]))
        return Value(float(np.mean(means)), spread, float(np.mean([max(scores) for scores in series])), len(series))
    return Value(float(np.mean(means)), float(np.std(means)), None, len(series))


def evaluations(folder: Path, metric: str, split: str) -> list[float]:
    """The means of all evaluations during training, in order."""
    key = f"eval/{split}/{metric}"
    return [float(line[key]["mean"]) for line in Run(folder).metrics() if key in line]


def place_of(arm: Arm, out: Path) -> float | None:
    """Where the arm's point lies; the number of parameters is known once it has begun."""
    if arm.x != PARAMETERS:
        return None if arm.x is None else float(arm.x)
    run = Run(run_folder(out, arm, 0))
    return float(run.description()["num_parameters"]) if run.exists else None
