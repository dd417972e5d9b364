"""What came out of a study's runs, by the statistic that the paper uses."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    """Between seeds."""
    num_seeds: int
    """Those that are finished."""
    maximum: float | None = None
    """The best evaluation, averaged over seeds."""
    evaluations_std: float | None = None
    """Between evaluations of a seed, averaged over seeds."""


def value_of(study: Study, arm: Arm, metric: str, split: str, out: Path, num_seeds: int) -> Value | None:
    """None as long as no seed of the arm is finished."""
    folders = [run_folder(out, arm, seed) for seed in range(num_seeds)]
    finished = [folder for folder in folders if Run(folder).is_evaluated]
    series = [scores for folder in finished if (scores := evaluations(folder, metric, split))]
    if not series:
        return None
    if study.statistic == "last-ten":
        series = [scores[-NUM_LAST:] for scores in series]
    means = [float(np.mean(scores)) for scores in series]
    value = Value(float(np.mean(means)), float(np.std(means)), len(series))
    if study.statistic != "maximum-and-mean":
        return value
    maximum, spread = (float(np.mean([of(scores) for scores in series])) for of in (max, np.std))
    return replace(value, maximum=maximum, evaluations_std=spread)


def evaluations(folder: Path, metric: str, split: str) -> list[float]:
    """The means of all evaluations during training, in order."""
    key = f"eval/{split}/{metric}"
    return [float(line[key]["mean"]) for line in Run(folder).metrics() if key in line]


def place_of(arm: Arm, out: Path, num_seeds: int) -> float | None:
    """Where the arm's point lies; the number of parameters is known once one of its runs has begun."""
    if arm.x != PARAMETERS:
        return None if arm.x is None else float(arm.x)
    runs = (Run(run_folder(out, arm, seed)) for seed in range(num_seeds))
    return next((float(run.description()["num_parameters"]) for run in runs if run.exists), None)
