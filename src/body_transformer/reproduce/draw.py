"""A study as a table, beside the paper's numbers, or as a figure."""

from __future__ import annotations

from pathlib import Path

from .outcome import Value, place_of, value_of
from .study import Study

MISSING = "–"


def as_markdown(study: Study, out: Path, num_seeds: int) -> str:
    """One row an arm: ours, and the paper's where it gives numbers."""
    columns = [(metric, split) for metric in study.metrics for split in study.splits]
    head = ["", *([study.x] if study.x else [])]
    for metric, split in columns:
        head += [f"{metric.replace('_', ' ')}, {split}", *(["paper"] if any(arm.paper for arm in study.arms) else [])]
    rows = [head, ["---"] * len(head)]
    for arm in study.arms:
        place = place_of(arm, out, num_seeds)
        row = [" ".join(filter(None, (arm.panel, arm.label)))]
        if study.x:
            row.append(MISSING if place is None else f"{place:,.0f}")
        for metric, split in columns:
            row.append(words(value_of(study, arm, metric, split, out, num_seeds), num_seeds))
            if any(other.paper for other in study.arms):
                row.append(paper_words(arm.paper.get(metric, {}).get(split)))
        rows.append(row)
    body = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"# {study.title}\n\n{explain(study)}\n\n{body}\n"


def explain(study: Study) -> str:
    return {
        "maximum-and-mean": "The best evaluation during training / the mean of all ± their standard deviation; each "
        "averaged over seeds. In brackets, the standard deviation of that mean between seeds.",
        "mean": "The mean of all evaluations during training ± the standard deviation between seeds.",
        "last-ten": "The mean of the last ten evaluations ± the standard deviation between seeds.",
    }[study.statistic]


def words(value: Value | None, num_seeds: int) -> str:
    if value is None:
        return MISSING
    seeds = "" if value.num_seeds == num_seeds else f" ({value.num_seeds} of {num_seeds} seeds)"
    if value.maximum is None:
        return f"{value.mean:.3f} ± {value.std:.3f}{seeds}"
    return f"{value.maximum:.3f} / {value.mean:.3f} ± {value.evaluations_std:.3f} (± {value.std:.3f}){seeds}"


def paper_words(numbers: object) -> str:
    if not isinstance(numbers, list | tuple):
        return MISSING
    maximum, mean, std = numbers
    return f"{maximum} / {mean} ± {std}"


def draw_figure(study: Study, file: Path, out: Path, num_seeds: int) -> None:
    """A panel a metric, split and part; a curve a label, with the spread over seeds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    parts = sorted({arm.panel for arm in study.arms})
    panels = [(part, metric, split) for part in parts for metric in study.metrics for split in study.splits]
    figure = Figure(figsize=(4.2 * len(panels), 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (part, metric, split) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for label in dict.fromkeys(arm.label for arm in study.arms):
            points = []
            for arm in study.arms:
                place = place_of(arm, out, num_seeds)
                value = value_of(study, arm, metric, split, out, num_seeds)
                if (arm.label, arm.panel) == (label, part) and place is not None and value is not None:
                    points.append((place, value.mean, value.std))
            if points:
                x, mean, std = zip(*sorted(points), strict=True)
                (line,) = axes.plot(x, mean, marker="o", label=label)
                low, high = ([m + sign * s for m, s in zip(mean, std, strict=True)] for sign in (-1, 1))
                axes.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        axes.set(title=" ".join(filter(None, (part, metric.replace("_", " "), split))), xlabel=study.x)
        if axes.has_data():
            axes.legend(fontsize="small")
    figure.savefig(file, dpi=150)
