"""Studies of imitation: scores over seeds beside the paper's numbers, as a table and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..report.load import LoadedRun
from ..report.text import markdown_table
from .study import PARAMETERS, Arm, ArmRuns, Study

NUM_LAST = 10
"""Evaluations in the statistic `last-ten`."""
MISSING = "–"
EXPLAIN = {
    "maximum-and-mean": "The best evaluation during training / the mean of all ± their standard deviation, each "
    "averaged over seeds. In brackets, the standard deviation of that mean between seeds.",
    "mean": "The mean of all evaluations during training ± the standard deviation between seeds.",
    "last-ten": "The mean of the last ten evaluations ± the standard deviation between seeds.",
}

# -- numbers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """A metric of one arm, over seeds."""

    mean: float
    std: float
    """Standard deviation between seeds."""
    num_seeds: int
    """Number of finished seeds."""
    maximum: float | None = None
    """Best evaluation, averaged over seeds."""
    evaluations_std: float | None = None
    """Standard deviation between evaluations of a seed, averaged over seeds."""


def score(study: Study, runs: Sequence[LoadedRun], metric: str, split: str) -> Score | None:
    """Return the score of an arm's finished runs; None without any."""
    series = [values for run in runs if run.is_evaluated and (values := evaluations(run, metric, split))]
    if not series:
        return None
    if study.statistic == "last-ten":
        series = [values[-NUM_LAST:] for values in series]
    means = [float(np.mean(values)) for values in series]
    found = Score(float(np.mean(means)), float(np.std(means)), len(series))
    if study.statistic != "maximum-and-mean":
        return found
    maximum, spread = (float(np.mean([of(values) for values in series])) for of in (max, np.std))
    return replace(found, maximum=maximum, evaluations_std=spread)


def evaluations(run: LoadedRun, metric: str, split: str) -> list[float]:
    """Return the means of all evaluations during training, in order."""
    return [point.value.mean for point in run.curves.get(f"eval/{split}/{metric}", ())]


def position(arm: Arm, runs: Sequence[LoadedRun]) -> float | None:
    """Return an arm's horizontal position; a number of parameters is known once one of its runs has begun."""
    if arm.x != PARAMETERS:
        return None if arm.x is None else float(arm.x)
    return next((float(run.num_parameters) for run in runs if run.num_parameters is not None), None)


# -- the table ---------------------------------------------------------------------------------------------------------


def as_markdown(study: Study, arms: ArmRuns, num_seeds: int) -> str:
    """Return one row per arm: our scores, and the paper's if it gives numbers."""
    columns = [(metric, split) for metric in study.metrics for split in study.splits]
    has_paper = any(arm.paper for arm, _ in arms)
    head = ["", *([study.x] if study.x else [])]
    for metric, split in columns:
        head += [f"{metric.replace('_', ' ')}, {split}", *(["paper"] if has_paper else [])]
    rows = []
    for arm, runs in arms:
        at = position(arm, runs)
        row = [" ".join(filter(None, (arm.panel, arm.label)))]
        row += [MISSING if at is None else f"{at:,.0f}"] if study.x else []
        for metric, split in columns:
            row.append(_score_text(score(study, runs, metric, split), num_seeds))
            row += [_paper_text(arm.paper.get(metric, {}).get(split))] if has_paper else []
        rows.append(row)
    return f"# {study.title}\n\n{EXPLAIN[study.statistic]}\n\n{markdown_table(head, rows)}"


def _score_text(found: Score | None, num_seeds: int) -> str:
    if found is None:
        return MISSING
    seeds = "" if found.num_seeds == num_seeds else f" ({found.num_seeds} of {num_seeds} seeds)"
    if found.maximum is None:
        return f"{found.mean:.3f} ± {found.std:.3f}{seeds}"
    return f"{found.maximum:.3f} / {found.mean:.3f} ± {found.evaluations_std:.3f} (± {found.std:.3f}){seeds}"


def _paper_text(numbers: Sequence[float] | None) -> str:
    if numbers is None:
        return MISSING
    maximum, mean, std = numbers
    return f"{maximum} / {mean} ± {std}"


# -- the figure --------------------------------------------------------------------------------------------------------


def draw_figure(study: Study, arms: ArmRuns, file: Path, num_seeds: int) -> None:
    """Draw a panel per part, metric and split, with a curve per label and its spread over seeds."""
    from matplotlib.figure import Figure

    parts = sorted({arm.panel for arm, _ in arms})
    panels = [(part, metric, split) for part in parts for metric in study.metrics for split in study.splits]
    figure = Figure(figsize=(4.2 * len(panels), 3.4), layout="constrained")
    for axes, (part, metric, split) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for label in dict.fromkeys(arm.label for arm, _ in arms):
            own = [(arm, runs) for arm, runs in arms if (arm.label, arm.panel) == (label, part)]
            found = [(position(arm, runs), score(study, runs, metric, split)) for arm, runs in own]
            points = sorted((at, one.mean, one.std) for at, one in found if at is not None and one is not None)
            if points:
                x, mean, std = map(np.array, zip(*points, strict=True))
                (line,) = axes.plot(x, mean, marker="o", label=label)
                axes.fill_between(x, mean - std, mean + std, color=line.get_color(), alpha=0.2, linewidth=0)
        axes.set(title=" ".join(filter(None, (part, metric.replace("_", " "), split))), xlabel=study.x)
        if axes.has_data():
            axes.legend(fontsize="small")
    figure.savefig(file, dpi=150)
