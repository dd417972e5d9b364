"""Charts of tables: dots on a logarithmic axis, one panel per table."""

from collections.abc import Mapping, Sequence
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from .results import ResultTable

# Okabe and Ito's palette suits the common kinds of colour blindness; the floor is grey, since it is not a contender.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
FLOOR = "#888888"
LINE, WIDTH, HEADER = 0.13, 8.0, 0.75  # inches

Series = Mapping[str, Sequence[float | None]]
"""Name -> one value per row; None draws no dot. The series called `floor` is grey."""


def chart(title: str, tables: Sequence[ResultTable]) -> Figure:
    """Draw the series of the tables, one panel per table that has any."""
    panels = [(table, series) for table in tables if (series := series_of(table))]
    heights = [HEADER + len(table.rows) * (len(series) + 1) * LINE for table, series in panels] or [HEADER]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.4), layout="constrained")
    figure.suptitle(title, fontsize=10)
    grid = figure.subplots(len(heights), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    for axes, (table, series) in zip(grid[:, 0], panels, strict=False):  # without panels, empty axes remain
        _draw_panel(axes, table, series)
    return figure


def series_of(table: ResultTable) -> Series:
    """Return those series of a table that have at least one number."""
    found = {name: [_number(value(row)) for row in table.rows] for name, value in table.series.items()}
    return {name: values for name, values in found.items() if any(values)}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _draw_panel(axes: Axes, table: ResultTable, series: Series) -> None:
    colours, pitch = cycle(COLOURS), len(series) + 1  # lines from one row to the next
    for line, (name, values) in enumerate(series.items()):
        colour = FLOOR if name == "floor" else next(colours)
        dots = [(value, k * pitch + line) for k, value in enumerate(values) if value]
        axes.plot([x for x, _ in dots], [y for _, y in dots], "o", color=colour, markersize=4, label=name)
        for dot in dots:
            axes.annotate(f"{dot[0]:.3g}", dot, (4, -2), textcoords="offset points", fontsize=6, color=colour)
    labels = [table.label.format(**row) for row in table.rows]
    axes.set_yticks([(k + 0.5) * pitch - 1 for k in range(len(labels))], labels, fontsize=7)
    axes.set_ylim(len(labels) * pitch - 1, -1)  # the first row on top, as in the table
    axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel(table.unit, fontsize=7)
    axes.tick_params(axis="x", labelsize=7)
    axes.grid(axis="x", linewidth=0.4)
    axes.set_axisbelow(True)
    axes.set_title(table.title, fontsize=8, loc="left", pad=18)
    axes.legend(fontsize=7, frameon=False, ncols=len(series), loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0)
