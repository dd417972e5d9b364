"""The paper's figures of its computational analysis, and one it does not have: real bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..files import atomic_write
from .contenders import CONTENDERS
from .record import Point, Record, break_even
from .sweeps import SPARSITY

# Okabe and Ito's colours stay apart in the common colour blindnesses.
STYLES: Mapping[str, dict[str, Any]] = {
    "vanilla": {"color": "#666666", "marker": "s"},
    "textbook": {"color": "#AAAAAA", "marker": "x", "linestyle": "--"},
    "paper": {"color": "#E69F00", "marker": "^"},
    "ours": {"color": "#0072B2", "marker": "o"},
    "ours-c": {"color": "#009E73", "marker": "D"},
    "sdpa": {"color": "#CC79A7", "marker": "v", "linestyle": ":"},
}
ALGORITHM_LABELS = {"vanilla": "vanilla", "paper": "paper's masked", "ours": "ours"}
DPI, MARKER = 150, 4


def draw_all(record: Record, folder: Path) -> list[Path]:
    """Every figure for which there is at least one point; their paths."""
    return [
        atomic_write(folder / f"paper_{sweep}.png", partial(_save, draw, record))
        for sweep, draw in FIGURES.items()
        if record.sweep(sweep)
    ]


def _save(draw: Callable[[Record], Figure], record: Record, path: Path) -> None:
    with mpl.rc_context():
        mpl.rcdefaults()  # a user's dark style would leave text white on white
        draw(record).savefig(path, dpi=DPI)


def lengths_figure(record: Record) -> Figure:
    """Runtime and FLOPs over the sequence length."""
    points = [point for point in record.sweep("length") if point["dtype"] == record.settings.dtype]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    runtime, flops = figure.subplots(1, 2)
    nodes = [point["nodes"] for point in points]
    _lines(runtime, nodes, points, "median_us")
    _lines(flops, nodes, points, "flops")
    runtime.set(title=f"runtime at sparsity {SPARSITY}", xlabel="nodes", ylabel="median runtime (µs)", yscale="log")
    flops.set(
        title=f"FLOPs at sparsity {SPARSITY}", xlabel="nodes", ylabel="FLOPs (the appendix's formulas)", yscale="log"
    )
    return _finish(figure, record)


def sparsities_figure(record: Record) -> Figure:
    """Runtime and FLOPs over the sparsity, a column for each number of nodes; dotted: the break-even with vanilla."""
    points = record.sweep("sparsity")
    even = break_even(points)
    figure = Figure(figsize=(3.3 * len(even), 6), layout="constrained")
    axes = figure.subplots(2, len(even), squeeze=False, sharex="col")
    for (runtime, flops), (size, crossings) in zip(axes.T, even.items(), strict=True):
        found = [point for point in points if point["name"] == size]
        sparsities = [point["sparsity"] for point in found]
        _lines(runtime, sparsities, found, "median_us")
        _lines(flops, sparsities, found, "flops")
        for name, sparsity in crossings.items():
            if sparsity is not None and sparsity > sparsities[0]:
                runtime.axvline(sparsity, color=STYLES[name]["color"], linestyle=":", linewidth=1)
        runtime.set(title=size, ylim=(0, None))
        flops.set(xlabel="sparsity (share of zeros)", ylim=(0, None))
    axes[0, 0].set_ylabel("median runtime (µs)")
    axes[1, 0].set_ylabel("FLOPs (the appendix's formulas)")
    return _finish(figure, record)


def bodies_figure(record: Record) -> Figure:
    """Ones of the mask and runtime over the number of nodes, for real bodies."""
    points = sorted(record.sweep("body"), key=lambda point: point["nodes"])
    nodes = np.array([point["nodes"] for point in points])
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    ones, runtime = figure.subplots(1, 2)
    ones.plot(nodes, nodes**2, color=STYLES["vanilla"]["color"], linestyle="--", label="all pairs, n²")
    ones.plot(
        nodes, (1 - SPARSITY) * nodes**2, color=STYLES["paper"]["color"], linestyle="--", label=f"sparsity {SPARSITY}"
    )
    ones.plot(nodes, [point["ones"] for point in points], label="the body's own", **STYLES["ours"], markersize=MARKER)
    ones.plot(nodes, 3 * nodes - 2, color="#222222", linestyle=":", label="a tree, 3n - 2")
    for index, point in enumerate(points):  # now below, now above the line, lest names run into each other
        place = {"xytext": (-4, 5), "ha": "right"} if index % 2 else {"xytext": (4, -10), "ha": "left"}
        ones.annotate(point["name"], (point["nodes"], point["ones"]), textcoords="offset points", fontsize=6.5, **place)
    _lines(runtime, list(nodes), points, "median_us")
    ones.set(
        title="pairs that attend", xlabel="nodes", ylabel="ones in the mask", xscale="log", yscale="log", xlim=(7, None)
    )
    ones.legend(fontsize=7, frameon=False)
    runtime.set(title="runtime", xlabel="nodes", ylabel="median runtime (µs)", xscale="log", yscale="log")
    return _finish(figure, record, runtime)


FIGURES: Mapping[str, Callable[[Record], Figure]] = {
    "length": lengths_figure,
    "sparsity": sparsities_figure,
    "body": bodies_figure,
}
"""Sweep -> its figure."""


def _lines(axes: Axes, x: Sequence[float], points: Sequence[Point], quantity: str) -> None:
    """One line for each contender, or for each algorithm where FLOPs are drawn."""
    labels = ALGORITHM_LABELS if quantity == "flops" else {name: one.label for name, one in CONTENDERS.items()}
    for name, label in labels.items():
        if name in points[0][quantity]:
            axes.plot(x, [point[quantity][name] for point in points], label=label, markersize=MARKER, **STYLES[name])


def _finish(figure: Figure, record: Record, legend_from: Axes | None = None) -> Figure:
    """Grid, legend, and where it was measured."""
    for axes in figure.axes:
        axes.grid(alpha=0.3)
    handles, labels = (legend_from or figure.axes[0]).get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8, frameon=False)
    settings = record.settings
    where = f"one thread, head width {settings.head_dim}, {settings.dtype}; {record.environment.get('device', '')}"
    figure.suptitle(where, fontsize=8, color="#666666")
    return figure
