"""Charts of times: dots on a logarithmic axis, one panel per table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

# Okabe and Ito's colours stay apart in the common colour blindnesses; the floor is grey, as no contender reaches it.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
FLOOR = "#888888"
LINE, GAP, WIDTH, HEADER, DPI = 0.13, 0.1, 8.0, 0.75, 150  # inches; dots per inch


@dataclass(frozen=True)
class Panel:
    """Groups of dots: per label one dot of each series; None draws none."""

    title: str
    labels: Sequence[str]
    series: Mapping[str, Sequence[float | None]]
    """Name -> one value per label; the series called `floor` is grey."""
    unit: str = "ms"


@dataclass(frozen=True)
class Chart:
    title: str
    panels: Sequence[Panel]


def draw(chart: Chart, path: Path) -> None:
    """Write the chart as a PNG file."""
    panels = [panel for panel in chart.panels if panel.labels and panel.series]
    heights = [HEADER + len(panel.labels) * _pitch(panel) for panel in panels] or [HEADER]
    with mpl.rc_context():
        mpl.rcdefaults()  # ignore the style that the user has set
        figure = Figure(figsize=(WIDTH, sum(heights) + 0.4), layout="constrained")
        figure.suptitle(chart.title, fontsize=10)
        grid = figure.subplots(len(heights), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
        for axes, panel in zip(grid[:, 0], panels, strict=False):  # without panels, one empty pair of axes remains
            _draw_panel(axes, panel)
        figure.savefig(path, format="png", dpi=DPI)


def _pitch(panel: Panel) -> float:
    return len(panel.series) * LINE + GAP


def _draw_panel(axes: Axes, panel: Panel) -> None:
    colours = iter(COLOURS * (len(panel.series) // len(COLOURS) + 1))
    for place, (name, values) in enumerate(panel.series.items()):
        colour = FLOOR if name == "floor" else next(colours)
        dots = [(value, k * _pitch(panel) + place * LINE) for k, value in enumerate(values) if value]
        axes.plot([x for x, _ in dots], [y for _, y in dots], "o", color=colour, markersize=4, label=name)
        for value, y in dots:
            axes.annotate(f"{value:.3g}", (value, y), (4, -2), textcoords="offset points", fontsize=6, color=colour)
    middle = (len(panel.series) - 1) * LINE / 2
    axes.set_yticks([k * _pitch(panel) + middle for k in range(len(panel.labels))], list(panel.labels), fontsize=7)
    axes.set_ylim(len(panel.labels) * _pitch(panel) - GAP, -LINE)  # the first row on top, as in the table
    _scale(axes, panel.unit)
    axes.set_title(panel.title, fontsize=8, loc="left", pad=18)
    axes.legend(
        fontsize=7, frameon=False, ncols=len(panel.series), loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0
    )


def _scale(axes: Axes, unit: str) -> None:
    axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(unit, fontsize=7)
    axes.tick_params(axis="x", labelsize=7)
    axes.grid(axis="x", linewidth=0.4)
    axes.set_axisbelow(True)
