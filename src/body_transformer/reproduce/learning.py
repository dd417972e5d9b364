"""How runs learned: their evaluations over training, and the last one, over seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from ..rl.config import with_current_names
from ..run import EVALUATION, Run
from .study import Arm, run_folder


@dataclass(frozen=True)
class Point:
    """One evaluation of one seed."""

    env_steps: int
    time_s: float
    """Spent on training until then, evaluations left out."""
    value: float


@dataclass(frozen=True)
class Seed:
    """What one run's folder says, of one split."""

    is_finished: bool
    env_steps: int
    """As far as it has come."""
    total_steps: int
    """As far as it was asked to go."""
    curves: Mapping[str, Sequence[Point]]
    """Metric -> its evaluations, by steps."""
    last: Mapping[str, float]
    """Metric -> its last evaluation; of a finished run, the one after training."""
    iteration_s: float | None
    """The usual time of an iteration: half of them took less."""
    num_parameters: int | None


@dataclass(frozen=True)
class Mean:
    """Over seeds."""

    mean: float
    error: float | None
    """The standard error; one seed alone has none."""
    num_seeds: int


@dataclass(frozen=True)
class Stop:
    """A point of a curve over seeds: what those say that were evaluated there."""

    env_steps: int
    time_s: float
    value: Mean


def over(values: Sequence[float]) -> Mean:
    """Of at least one seed."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return Mean(fmean(values), error, len(values))


def curve(seeds: Sequence[Seed], metric: str) -> list[Stop]:
    """Where every seed that came so far was evaluated, by steps; the time at each is the seeds' mean as well."""
    lines = [{point.env_steps: point for point in seed.curves[metric]} for seed in seeds if seed.curves.get(metric)]
    stops = []
    for steps in sorted({steps for line in lines for steps in line}):
        so_far = [line for line in lines if max(line) >= steps]
        if all(steps in line for line in so_far):
            points = [line[steps] for line in so_far]
            time_s = fmean(point.time_s for point in points)
            stops.append(Stop(steps, time_s, over([point.value for point in points])))
    return stops


# -- reading -----------------------------------------------------------------------------------------------------------


def read_seeds(arm: Arm, split: str, out: Path, num_seeds: int) -> list[Seed]:
    """The arm's runs that have begun."""
    runs = (Run(run_folder(out, arm, seed)) for seed in range(num_seeds))
    return [read_seed(run, split) for run in runs if run.exists]


def read_seed(run: Run, split: str) -> Seed:
    lines, described = [line for line in run.metrics() if "env_steps" in line], run.description()
    curves = _curves(lines, split)
    last = {metric: points[-1].value for metric, points in curves.items()}
    if run.is_evaluated:
        evaluation = json.loads((run.folder / EVALUATION).read_text(encoding="utf-8"))
        last = {metric: float(value["mean"]) for metric, value in evaluation["splits"].get(split, {}).items()}
    return Seed(
        is_finished=run.is_evaluated,
        env_steps=max((line["env_steps"] for line in lines), default=0),
        total_steps=_total_steps(with_current_names(described.get("rl", {}))),
        curves=curves,
        last=last,
        iteration_s=_iteration_s(lines),
        num_parameters=described.get("num_parameters"),
    )


def _curves(lines: Sequence[Mapping[str, Any]], split: str) -> dict[str, list[Point]]:
    """Where a step was evaluated twice, as after a resumption, the later line counts."""
    found: dict[str, dict[int, Point]] = {}
    prefix = f"eval/{split}/"
    for line in lines:
        for key, value in line.items():
            if key.startswith(prefix):
                point = Point(line["env_steps"], line["time_s"], float(value["mean"]))
                found.setdefault(key.removeprefix(prefix), {})[point.env_steps] = point
    return {metric: [points[steps] for steps in sorted(points)] for metric, points in found.items()}


def _iteration_s(lines: Sequence[Mapping[str, Any]]) -> float | None:
    """The first is left out: much is done there once and for all."""
    times = dict(sorted({line["step"]: line["time_s"] for line in lines}.items()))
    taken = [(after - before) / (to - at) for (at, before), (to, after) in pairwise(times.items())]
    return median(taken) if taken else None


def _total_steps(rl: Mapping[str, int]) -> int:
    return rl.get("max_iterations", 0) * rl.get("num_envs", 0) * rl.get("num_steps_per_env", 0)
