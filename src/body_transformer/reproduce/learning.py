"""Studies of reinforcement learning: learning curves as a figure, the last evaluations as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..report.curves import SeedMean, SeedMeanPoint, seed_mean, seed_mean_curve
from ..report.figures import FEW
from ..report.load import LoadedRun
from ..report.svg import label_styles, stroke_style
from ..report.text import markdown_table
from .scores import MISSING
from .study import Arm, ArmRuns, Study

METRIC_NAMES = {"total_reward": "return", "forward_speed": "forward speed, m/s", "length": "length, steps"}
CURVE_AXES: dict[str, Callable[[SeedMeanPoint], float]] = {
    "environment steps, millions": lambda point: point.env_steps / 1e6,
    "training time, minutes": lambda point: point.time_s / 60,
}

# -- the table ---------------------------------------------------------------------------------------------------------


def as_markdown(study: Study, arms: ArmRuns, num_seeds: int) -> str:
    """Return one row per arm."""
    split = study.splits[0]
    metrics = [name for name in study.metrics if any((split, name) in run.results for _, runs in arms for run in runs)]
    head = ["task", "", "seeds", "steps", *(METRIC_NAMES.get(name, name.replace("_", " ")) for name in metrics)]
    head += ["an iteration, s", "parameters"]
    rows = [_row(arm, runs, [(split, name) for name in metrics], num_seeds) for arm, runs in arms]
    return f"# {study.title}\n\n{_explain(arms, num_seeds)}\n\n{markdown_table(head, rows)}"


def _row(arm: Arm, runs: Sequence[LoadedRun], metrics: Sequence[tuple[str, str]], num_seeds: int) -> list[str]:
    """Return an arm's row from its finished seeds; if none is finished, from the unfinished ones, in italics."""
    finished = [run for run in runs if run.is_evaluated]
    counted = finished or runs
    row = [arm.experiment, arm.label, progress(runs, num_seeds) or str(num_seeds), _steps(counted)]
    for metric in metrics:
        values = [run.results[metric].mean for run in counted if metric in run.results]
        text = _number(seed_mean(values)) if values else MISSING
        row.append(text if finished or not values else f"*{text}*")
    times = [run.iteration_s for run in counted if run.iteration_s is not None]
    sizes = [run.num_parameters for run in counted if run.num_parameters is not None]
    return [*row, _number(seed_mean(times)) if times else MISSING, f"{sizes[0]:,}" if sizes else MISSING]


def _number(value: SeedMean) -> str:
    places = 0 if abs(value.mean) >= 1000 else 1 if abs(value.mean) >= 10 else 2
    return f"{value.mean:.{places}f}" + ("" if value.error is None else f" ± {value.error:.{places}f}")


def _steps(runs: Sequence[LoadedRun]) -> str:
    """Return the environment steps of the run with the fewest."""
    if not runs:
        return MISSING
    least = min(runs, key=lambda run: run.env_steps or 0)
    steps = f"{(least.env_steps or 0) / 1e6:.3g} M"
    return steps if least.is_evaluated else f"{steps} of {least.total_env_steps / 1e6:.3g} M"


def progress(runs: Sequence[LoadedRun], num_seeds: int) -> str:
    """Return `2 of 5, 1 unfinished` for two finished seeds of five; an empty text if all are finished."""
    finished = sum(run.is_evaluated for run in runs)
    if finished == num_seeds:
        return ""
    begun = len(runs) - finished
    return f"{finished} of {num_seeds}" + (f", {begun} unfinished" if begun else "")


def _explain(arms: ArmRuns, num_seeds: int) -> str:
    texts = [
        "The evaluation after training (mean action, one episode per robot): mean ± standard error over seeds. "
        "The time of an iteration is the median of a run; runs side by side on one device slow each other down.",
        _missing(arms, num_seeds),
    ]
    if any(runs and not any(run.is_evaluated for run in runs) for _, runs in arms):
        texts.append("*In italics*: no seed is finished; the last evaluations so far.")
    return " ".join(filter(None, texts))


def _missing(arms: ArmRuns, num_seeds: int) -> str:
    total, begun = num_seeds * len(arms), sum(len(runs) for _, runs in arms)
    finished = sum(run.is_evaluated for _, runs in arms for run in runs)
    if finished == total:
        return ""
    return f"Not complete: of {total} runs, {begun - finished} unfinished and {total - begun} missing."


# -- the figure --------------------------------------------------------------------------------------------------------


def draw_figure(study: Study, arms: ArmRuns, num_seeds: int) -> Figure:
    """Draw a column per task, with the return by steps above and by time below."""
    tasks = list(dict.fromkeys(arm.experiment for arm, _ in arms))
    styles = label_styles(arm.label for arm, _ in arms if arm.against is None)
    metric = study.metrics[0]
    figure = Figure(figsize=(4.4 * len(tasks), 7.2), layout="constrained")
    panels = figure.subplots(2, len(tasks), squeeze=False)
    for column, task in enumerate(tasks):
        for axes, (x_label, place) in zip(panels[:, column], CURVE_AXES.items(), strict=True):
            for arm, runs in ((arm, runs) for arm, runs in arms if arm.experiment == task):
                points = seed_mean_curve(runs, f"eval/{study.splits[0]}/{metric}")
                label = ": ".join(filter(None, (arm.label, progress(runs, num_seeds))))
                colour = stroke_style(styles[arm.against or arm.label])["color"]
                at, values = [place(point) for point in points], [point.value for point in points]
                if points:
                    _plot(axes, at, values, label, colour, ":" if arm.against else "-")
            _finish(axes, x_label, METRIC_NAMES.get(metric, metric))
        panels[0, column].set_title(task)
        if panels[1, column].has_data():
            panels[1, column].legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), fontsize="small", frameon=False)
    band = f"mean and standard error over {num_seeds} seeds" if num_seeds > 1 else "one seed"
    heading = filter(None, (f"Evaluations during training, {band}.", _missing(arms, num_seeds)))
    figure.suptitle("\n".join(heading), fontsize="medium")
    return figure


def _plot(axes: Axes, at: Sequence[float], values: Sequence[SeedMean], label: str, colour: str, style: str) -> None:
    """Draw the line, and its band where there is more than one seed."""
    mean = np.array([value.mean for value in values])
    error = np.array([np.nan if value.error is None else value.error for value in values])
    axes.plot(at, mean, style, marker="." if len(at) <= FEW else None, color=colour, label=label)
    axes.fill_between(at, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)


def _finish(axes: Axes, x: str, y: str) -> None:
    axes.set(xlabel=x, ylabel=y)
    if axes.has_data():
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
    else:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "no evaluation yet", ha="center", transform=axes.transAxes)
