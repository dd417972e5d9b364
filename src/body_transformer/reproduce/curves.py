"""A study of learning curves: return by steps and by time as a figure, the last evaluations as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..report.svg import COLOURS, label_styles
from .draw import MISSING
from .learning import Mean, Seed, Stop, curve, over, read_seeds
from .study import Arm, Study

Arms = list[tuple[Arm, list[Seed]]]
WORDS = {"total_reward": "return", "forward_speed": "forward speed, m/s", "length": "length, steps"}
FEW = 12
"""Up to so many points have dots."""


def read(study: Study, out: Path, num_seeds: int) -> Arms:
    return [(arm, read_seeds(arm, study.splits[0], out, num_seeds)) for arm in study.arms]


# -- the table ---------------------------------------------------------------------------------------------------------


def as_markdown(study: Study, out: Path, num_seeds: int) -> str:
    """One row an arm."""
    arms = read(study, out, num_seeds)
    metrics = [name for name in study.metrics if any(name in seed.last for _, seeds in arms for seed in seeds)]
    head = ["task", "", "seeds", "steps", *(WORDS.get(name, name.replace("_", " ")) for name in metrics)]
    head += ["an iteration, s", "parameters"]
    rows = [head, ["---"] * len(head), *(_row(arm, seeds, metrics, num_seeds) for arm, seeds in arms)]
    body = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"# {study.title}\n\n{_explain(arms, num_seeds)}\n\n{body}\n"


def _row(arm: Arm, seeds: Sequence[Seed], metrics: Sequence[str], num_seeds: int) -> list[str]:
    """Of the finished seeds; as long as there are none, of those that have begun."""
    counted = [seed for seed in seeds if seed.is_finished] or list(seeds)
    is_final = any(seed.is_finished for seed in seeds)
    row = [arm.experiment, arm.label, state(seeds, num_seeds) or str(num_seeds), _steps(counted)]
    for metric in metrics:
        values = [seed.last[metric] for seed in counted if metric in seed.last]
        words = number(over(values)) if values else MISSING
        row.append(words if is_final or not values else f"*{words}*")
    times = [seed.iteration_s for seed in counted if seed.iteration_s is not None]
    sizes = [seed.num_parameters for seed in counted if seed.num_parameters is not None]
    row.append(number(over(times)) if times else MISSING)
    row.append(f"{sizes[0]:,}" if sizes else MISSING)
    return row


def number(value: Mean) -> str:
    places = 0 if abs(value.mean) >= 1000 else 1 if abs(value.mean) >= 10 else 2
    return f"{value.mean:.{places}f}" + ("" if value.error is None else f" ± {value.error:.{places}f}")


def _steps(seeds: Sequence[Seed]) -> str:
    """The fewest, if they have not come equally far."""
    if not seeds:
        return MISSING
    least = min(seeds, key=lambda seed: seed.env_steps)
    far = f"{least.env_steps / 1e6:.3g} M"
    return far if least.is_finished else f"{far} of {least.total_steps / 1e6:.3g} M"


def state(seeds: Sequence[Seed], num_seeds: int) -> str:
    """Which seeds are not what they should be; empty if all are finished."""
    finished = sum(seed.is_finished for seed in seeds)
    if finished == num_seeds:
        return ""
    begun = len(seeds) - finished
    return f"{finished} of {num_seeds}" + (f", {begun} unfinished" if begun else "")


def _explain(arms: Arms, num_seeds: int) -> str:
    words = [
        "The evaluation after training (mean action, one episode a robot): mean ± standard error over seeds. "
        "The time of an iteration is the median of a run; runs side by side on one device slow each other down.",
        _missing(arms, num_seeds),
    ]
    if any(seeds and not any(seed.is_finished for seed in seeds) for _, seeds in arms):
        words.append("*In italics*: no seed is finished; the last evaluations so far.")
    return " ".join(filter(None, words))


def _missing(arms: Arms, num_seeds: int) -> str:
    total, begun = num_seeds * len(arms), sum(len(seeds) for _, seeds in arms)
    finished = sum(seed.is_finished for _, seeds in arms for seed in seeds)
    if finished == total:
        return ""
    return f"Not complete: of {total} runs, {begun - finished} unfinished and {total - begun} missing."


# -- the figure --------------------------------------------------------------------------------------------------------


def draw_figure(study: Study, file: Path, out: Path, num_seeds: int) -> None:
    """A column a task; return by steps above, by time below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    arms = read(study, out, num_seeds)
    tasks = list(dict.fromkeys(arm.experiment for arm, _ in arms))
    colours = label_styles(arm.label for arm in study.arms if arm.against is None)
    figure = Figure(figsize=(4.4 * len(tasks), 7.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, len(tasks), squeeze=False)
    for column, task in enumerate(tasks):
        own = [(arm, seeds) for arm, seeds in arms if arm.experiment == task]
        for axes, (words, place) in zip(panels[:, column], AXES.items(), strict=True):
            for arm, seeds in own:
                colour = COLOURS[colours[arm.against or arm.label] % len(COLOURS)][0]
                said = ": ".join(filter(None, (arm.label, state(seeds, num_seeds))))
                _plot(axes, curve(seeds, study.metrics[0]), place, said, colour, is_dotted=arm.against is not None)
            _label(axes, words, WORDS.get(study.metrics[0], study.metrics[0]))
        panels[0, column].set_title(task)
        if panels[1, column].has_data():
            panels[1, column].legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), fontsize="small", frameon=False)
    band = f"mean and standard error over {num_seeds} seeds" if num_seeds > 1 else "one seed"
    heading = filter(None, (f"Evaluations during training, {band}.", _missing(arms, num_seeds)))
    figure.suptitle("\n".join(heading), fontsize="medium")
    figure.savefig(file, format="png", dpi=150)


def _label(axes: Any, x: str, y: str) -> None:
    axes.set(xlabel=x, ylabel=y)
    if axes.has_data():
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
    else:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "no evaluation yet", ha="center", transform=axes.transAxes)


AXES: dict[str, Callable[[Stop], float]] = {
    "environment steps, millions": lambda stop: stop.env_steps / 1e6,
    "training time, minutes": lambda stop: stop.time_s / 60,
}


def _plot(
    axes: Any, stops: Sequence[Stop], place: Callable[[Stop], float], label: str, colour: str, is_dotted: bool
) -> None:
    """The line, and its band where there is more than one seed."""
    if not stops:
        return
    at, mean = [place(stop) for stop in stops], [stop.value.mean for stop in stops]
    style = {"linestyle": ":" if is_dotted else "-", "marker": "." if len(at) <= FEW else None}
    axes.plot(at, mean, color=colour, label=label, **style)
    errors = [float("nan") if stop.value.error is None else stop.value.error for stop in stops]
    low, high = ([m + sign * e for m, e in zip(mean, errors, strict=True)] for sign in (-1, 1))
    axes.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
