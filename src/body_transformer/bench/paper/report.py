"""Report of a run: tables, notes, the paper's figures, and a further figure of real bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...schema import plain
from ..results import BenchReport, ResultColumn, ResultTable
from .algorithms import IMPLEMENTATIONS
from .flops import compare_counts
from .record import Point, Record
from .sweeps import SPARSITY


def report(record: Record) -> BenchReport:
    """Return the report, with one table and one figure per sweep that has measured points."""
    content = summary(record)
    sweeps = [name for name in SWEEPS if record.sweep(name)]
    tables = [_table(name, record.sweep(name)) for name in sweeps]
    figures = {f"paper_{name}.png": partial(SWEEPS[name][1], record) for name in sweeps}
    return BenchReport("paper", record.environment, tables, notes(content), figures, content)


# -- summary -----------------------------------------------------------------------------------------------------------


def summary(record: Record) -> dict[str, Any]:
    """Return the content of results.json."""
    settings = record.settings
    return {
        "bench": "paper",
        "environment": dict(record.environment),
        "settings": plain(settings),
        "contenders": {name: one.label for name, one in IMPLEMENTATIONS.items()},
        "headline": headline(record.sweep("length")),
        "break_even_sparsity": break_even(record.sweep("sparsity")),
        "flop_counts": compare_counts(settings.head_dim, SPARSITY, settings.exp_flops),
        "points": record.points,
    }


def headline(lengths: Sequence[Point]) -> list[Point]:
    """Return our fastest implementation at the longest length and its speed-up over vanilla NumPy, per dtype."""
    longest = max((point["nodes"] for point in lengths), default=0)
    rows = []
    for point in (point for point in lengths if point["nodes"] == longest):
        best = best_of_ours(point)
        row = {key: point[key] for key in ("nodes", "sparsity", "dtype", "draws")}
        mean_ratio = point["mean_us"]["vanilla"] / point["mean_us"][best]
        rows.append(row | {"best": best, "speedup": point["speedup"][best], "speedup_of_means": mean_ratio})
    return rows


def best_of_ours(point: Point) -> str:
    own: list[str] = [name for name in point["speedup"] if IMPLEMENTATIONS[name].is_ours]
    return max(own, key=point["speedup"].__getitem__)


def break_even(points: Sequence[Point]) -> dict[str, dict[str, float | None]]:
    """Return size -> implementation -> the sparsity from which it is faster than vanilla; None if it never is."""
    sizes: dict[str, list[Point]] = {}
    for point in points:
        sizes.setdefault(point["name"], []).append(point)
    return {
        size: {
            name: crossing([p["sparsity"] for p in found], [p["speedup"][name] for p in found])
            for name in found[0]["speedup"]
            if name != "vanilla"
        }
        for size, found in sizes.items()
    }


def crossing(sparsities: Sequence[float], speedups: Sequence[float]) -> float | None:
    """Return the sparsity above which the speed-up stays above 1, interpolated linearly; None without one."""
    slower = [index for index, speedup in enumerate(speedups) if speedup < 1]
    if not slower:
        return sparsities[0]
    last = slower[-1]
    if last == len(speedups) - 1:
        return None
    return float(np.interp(1, speedups[last : last + 2], sparsities[last : last + 2]))


# -- tables and notes --------------------------------------------------------------------------------------------------


COLUMNS = (
    ResultColumn("mask", "mask", "label"),
    ResultColumn("dtype", "dtype"),
    ResultColumn("nodes", "nodes", "count"),
    ResultColumn("ones", "ones", "count"),
    ResultColumn("sparsity", "sparsity", "share"),
    *(ResultColumn(name, one.label, "tenths") for name, one in IMPLEMENTATIONS.items()),
    ResultColumn("best_of_ours", "best of ours", "ratio"),
    ResultColumn("fewer_flops_paper", "FLOPs: paper", "ratio"),
    ResultColumn("fewer_flops_ours", "FLOPs: ours", "ratio"),
)


def _table(sweep: str, points: Sequence[Point]) -> ResultTable:
    """Return the table of median runtimes, our best speed-up over vanilla, and ratios of FLOPs."""
    title = f"{SWEEPS[sweep][0]}: median µs on one thread; x: times faster, or fewer FLOPs, than vanilla"
    return ResultTable(sweep, title, COLUMNS, [_row(point) for point in points])


def _row(point: Point) -> dict[str, Any]:
    flops = point["flops"]
    return {
        "mask": point["name"] if point["sweep"] == "body" else "random",
        **{key: point[key] for key in ("dtype", "nodes", "ones", "sparsity")},
        **point["median_us"],
        "best_of_ours": point["speedup"][best_of_ours(point)],
        **{f"fewer_flops_{name}": flops["vanilla"] / flops[name] for name in ("paper", "ours")},
    }


def notes(content: Mapping[str, Any]) -> list[str]:
    """Return notes on speed-ups, break-even sparsities and counted FLOPs."""
    lines = [
        f"{row['nodes']} nodes, sparsity {row['sparsity']:.3f}, {row['dtype']}: {IMPLEMENTATIONS[row['best']].label} "
        f"is {row['speedup']:.1f} times faster than vanilla NumPy (medians; {row['speedup_of_means']:.1f} by means)"
        for row in content["headline"]
    ]
    for size, crossings in content["break_even_sparsity"].items():
        parts = [f"{IMPLEMENTATIONS[name].label} {_wording(sparsity)}" for name, sparsity in crossings.items()]
        lines.append(f"{size}, faster than vanilla NumPy: {', '.join(parts)}")
    for row in content["flop_counts"]:
        agree = "as counted" if row["formula"] == row["counted"] else f"but {row['counted']:,} counted"
        more = f"a program executes {row['executed_over_formula']:.1%} more: {'; '.join(row['reasons'])}"
        lines.append(
            f"FLOPs, {row['algorithm']} at {row['nodes']} nodes: {row['formula']:,} by the formula, {agree}; {more}"
        )
    return lines


def _wording(sparsity: float | None) -> str:
    if sparsity is None:
        return "nowhere"
    return f"from sparsity {sparsity:.2f} on" if sparsity else "everywhere"


# -- figures -----------------------------------------------------------------------------------------------------------

# Okabe and Ito's palette suits the common kinds of colour blindness.
STYLES: Mapping[str, dict[str, Any]] = {
    "vanilla": {"color": "#666666", "marker": "s"},
    "textbook": {"color": "#AAAAAA", "marker": "x", "linestyle": "--"},
    "paper": {"color": "#E69F00", "marker": "^"},
    "ours": {"color": "#0072B2", "marker": "o"},
    "ours-c": {"color": "#009E73", "marker": "D"},
    "sdpa": {"color": "#CC79A7", "marker": "v", "linestyle": ":"},
}
ALGORITHM_LABELS = {"vanilla": "vanilla", "paper": "paper's masked", "ours": "ours"}
MARKER = 4


def lengths_figure(record: Record) -> Figure:
    """Draw runtime and FLOPs over the sequence length."""
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
    """Draw runtime and FLOPs over the sparsity, one column per size; dotted lines mark break-even with vanilla."""
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
    """Draw the ones of the mask and the runtime over the number of nodes, for real bodies."""
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
    for index, point in enumerate(points):  # names alternate below and above the line, so that they do not overlap
        place = {"xytext": (-4, 5), "ha": "right"} if index % 2 else {"xytext": (4, -10), "ha": "left"}
        ones.annotate(point["name"], (point["nodes"], point["ones"]), textcoords="offset points", fontsize=6.5, **place)
    _lines(runtime, list(nodes), points, "median_us")
    ones.set(
        title="pairs that attend", xlabel="nodes", ylabel="ones in the mask", xscale="log", yscale="log", xlim=(7, None)
    )
    ones.legend(fontsize=7, frameon=False)
    runtime.set(title="runtime", xlabel="nodes", ylabel="median runtime (µs)", xscale="log", yscale="log")
    return _finish(figure, record, runtime)


def _lines(axes: Axes, x: Sequence[float], points: Sequence[Point], quantity: str) -> None:
    """Draw one line per implementation, or per algorithm for FLOPs."""
    labels = ALGORITHM_LABELS if quantity == "flops" else {name: one.label for name, one in IMPLEMENTATIONS.items()}
    for name, label in labels.items():
        if name in points[0][quantity]:
            axes.plot(x, [point[quantity][name] for point in points], label=label, markersize=MARKER, **STYLES[name])


def _finish(figure: Figure, record: Record, legend_from: Axes | None = None) -> Figure:
    """Add the grid, the legend, and a title with settings and device."""
    for axes in figure.axes:
        axes.grid(alpha=0.3)
    handles, labels = (legend_from or figure.axes[0]).get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8, frameon=False)
    settings = record.settings
    where = f"one thread, head width {settings.head_dim}, {settings.dtype}; {record.environment.get('device', '')}"
    figure.suptitle(where, fontsize=8, color="#666666")
    return figure


SWEEPS: Mapping[str, tuple[str, Callable[[Record], Figure]]] = {
    "length": ("sequence length", lengths_figure),
    "sparsity": ("sparsity", sparsities_figure),
    "body": ("real bodies", bodies_figure),
}
"""Sweep -> its title and its figure."""
