"""Studies of imitation: scores over seeds beside the paper's numbers, as a table and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

import numpy as np
from matplotlib.figure import Figure

from ..report.curves import SeedMean, seed_mean
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


def evaluations(study: Study, runs: Sequence[LoadedRun], metric: str, split: str) -> list[list[float]]:
    """Return each finished run's evaluations during training, in order; for `last-ten`, only the last ten."""
    curves = [run.curves.get(f"eval/{split}/{metric}", ()) for run in runs if run.is_evaluated]
    first = -NUM_LAST if study.statistic == "last-ten" else 0
    return [[point.value.mean for point in points[first:]] for points in curves if points]


def score(seeds: Sequence[Sequence[float]]) -> SeedMean:
    """Return the mean over seeds of their mean evaluations."""
    return seed_mean([fmean(values) for values in seeds])


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
        row += [MISSING if at is None else f"{at:,.0f}" if at >= 1 else f"{at:g}"] if study.x else []
        for metric, split in columns:
            row.append(_score_text(study, evaluations(study, runs, metric, split), num_seeds))
            row += [_paper_text(arm.paper.get(metric, {}).get(split))] if has_paper else []
        rows.append(row)
    return f"# {study.title}\n\n{EXPLAIN[study.statistic]}\n\n{markdown_table(head, rows)}"


def _score_text(study: Study, seeds: Sequence[Sequence[float]], num_seeds: int) -> str:
    if not seeds:
        return MISSING
    found = score(seeds)
    missing = "" if found.num_seeds == num_seeds else f" ({found.num_seeds} of {num_seeds} seeds)"
    if study.statistic != "maximum-and-mean":
        return f"{found.mean:.3f} ± {found.std:.3f}{missing}"
    maximum, std = fmean(map(max, seeds)), fmean(map(pstdev, seeds))
    return f"{maximum:.3f} / {found.mean:.3f} ± {std:.3f} (± {found.std:.3f}){missing}"


def _paper_text(numbers: Sequence[float] | None) -> str:
    if numbers is None:
        return MISSING
    maximum, mean, std = numbers
    return f"{maximum} / {mean} ± {std}"


# -- the figure --------------------------------------------------------------------------------------------------------


def draw_figure(study: Study, arms: ArmRuns, num_seeds: int) -> Figure:
    """Draw a panel per part, metric and split, with a curve per label and its spread over seeds."""
    parts = sorted({arm.panel for arm, _ in arms})
    panels = [(part, metric, split) for part in parts for metric in study.metrics for split in study.splits]
    figure = Figure(figsize=(4.2 * len(panels), 3.4), layout="constrained")
    for axes, (part, metric, split) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for label in dict.fromkeys(arm.label for arm, _ in arms):
            own = [(arm, runs) for arm, runs in arms if (arm.label, arm.panel) == (label, part)]
            found = [(position(arm, runs), evaluations(study, runs, metric, split)) for arm, runs in own]
            scores = [(at, score(seeds)) for at, seeds in found if at is not None and seeds]
            if scores:
                x, mean, std = np.array(sorted((at, one.mean, one.std) for at, one in scores)).T
                (line,) = axes.plot(x, mean, marker="o", label=label)
                axes.fill_between(x, mean - std, mean + std, color=line.get_color(), alpha=0.2, linewidth=0)
        axes.set(title=" ".join(filter(None, (part, metric.replace("_", " "), split))), xlabel=study.x)
        if axes.has_data():
            axes.legend(fontsize="small")
    return figure
