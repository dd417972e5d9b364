"""The charts of the pages: learning curves, quantities over time, histograms and dot plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from .curves import Curve, Floats, thinned_ids
from .deployment import Deployment
from .svg import CARD, COLOURS, INK, STOP, Canvas, ChartFrame, Drawing, Line, hover_data, stroke_style
from .text import short

USUAL, SMALL = ChartFrame(), ChartFrame(360, 210)
FEW, MANY = 12, 150
"""Curves up to FEW points have dots; curves of more than MANY are thin, or noise would fill the drawing."""
BINS = 60
LEAST_COUNT = 0.51
"""Bottom of a histogram with a logarithmic axis: below 1, so that a single tick is visible, and above the label 0.5."""
LEAST_MS = 1e-3
"""Smallest time in a histogram: a clock may not resolve less, and zero has no logarithm."""
LETTER, MAX_LETTERS = 6.8, 30
"""Width of a letter, and longest name of a row of a dot plot."""
DETAIL = 640
PHASE_SHADES = {"policy": 0.0, "hold": 0.1, "damping": 0.14}
"""Opacity behind a phase; 0.06 for any other."""
LIMIT_LINE: dict[str, Any] = {"color": STOP, "linewidth": 1, "linestyle": (0, (4, 3)), "gid": "limit"}

# -- learning curves ---------------------------------------------------------------------------------------------------


def curves_chart(canvas: Canvas, title: str, x_label: str, lines: Sequence[Line]) -> Drawing:
    """Draw learning curves; the vertical axis of a loss that spans decades is logarithmic."""
    x_low, x_high = _span([line.curve.at for line in lines])
    x_low = 0.0 if 0 <= x_low < 0.2 * x_high else x_low
    y_low, y_high = _span([part for line in lines for part in (line.curve.low, line.curve.high)])
    is_log = "loss" in title and y_low > 0 and y_high / y_low > 20
    y = (y_low, y_high) if is_log else _padded(y_low, y_high)
    axes = canvas.axes(USUAL, (x_low, x_high), y, y_log=is_log, x_label=x_label)
    for line in lines:
        if line.curve.has_band:
            colour = stroke_style(line.style)["color"]
            area = line.curve.at, line.curve.low, line.curve.high
            axes.fill_between(*area, color=colour, alpha=0.16, linewidth=0, clip_on=False, gid="band")
    for line in lines:
        _stroke(axes, line, 1 if len(line.curve.at) > MANY else 2)
        if len(line.curve.at) <= FEW:
            colour = stroke_style(line.style)["color"]
            axes.plot(line.curve.at, line.curve.mean, "o", color=colour, markersize=6, mew=0, clip_on=False, gid="dot")
    label = f"{title} by {x_label}: " + "; ".join(_end(line) for line in lines)
    hover = hover_data(axes, x_label, lines)
    return Drawing(title, "log scale" if is_log else "", USUAL, canvas.svg(axes), label, hover)


def _stroke(axes: Axes, line: Line, width: float) -> None:
    style = stroke_style(line.style)
    axes.plot(
        line.curve.at, line.curve.mean, linewidth=width, clip_on=False, gid="line", solid_capstyle="round", **style
    )


def _end(line: Line) -> str:
    return f"{line.label} ends at {short(float(line.curve.mean[-1]))}"


def _span(parts: Sequence[Floats]) -> tuple[float, float]:
    low, high = min(float(part.min()) for part in parts), max(float(part.max()) for part in parts)
    return (low, high) if high > low else (low, low + 1.0)


def _padded(low: float, high: float) -> tuple[float, float]:
    """Add a margin; normalised values keep the whole range from 0 to 1, and zero is included if it is near."""
    if low >= 0 and 0.1 < high <= 1:
        return 0.0, 1.0
    spare = 0.06 * (high - low)
    return (0.0 if 0 <= low < 0.5 * high else low - spare), high + spare


# -- quantities over time ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trace:
    """A quantity over the ticks of a deployment, [T]; NaN where it has no value."""

    label: str
    style: int
    values: Floats


def time_chart(
    canvas: Canvas,
    one: Deployment,
    title: str,
    note: str,
    traces: Sequence[Trace],
    limits: Sequence[float] = (),
    only_near: bool = False,
    least: float = 0.2,
    trusted: npt.NDArray[np.bool_] | None = None,
    window_s: tuple[float, float] | None = None,
    detail: int = DETAIL,
    frame: ChartFrame = SMALL,
) -> Drawing:
    """Draw quantities over the time of a deployment, with limits, phases and the stop.

    Args:
        note: the unit, and other facts behind the title.
        only_near: draw a limit only near the values, not at any distance.
        least: smallest range of the vertical axis.
        trusted: [T] bool, the ticks whose values set the vertical axis; values beyond it are drawn at its edge.
        window_s: drawn part of the time; by default all of it.
        detail: points of a line before thinning, which keeps the lowest and highest of every stretch: half as many.
    """
    start_s, end_s = window_s or one.ends_s
    ticks = (one.time_s >= start_s) & (one.time_s <= end_s)
    believed = ticks if trusted is None else ticks & trusted
    low, high = _finite_span([trace.values[believed] for trace in traces], least)
    shown = [limit for limit in limits if not only_near or 2 * low - high <= limit <= 2 * high - low]
    low, high = min([low, *shown]), max([high, *shown])
    spare = 0.06 * (high - low)
    low, high = low - spare, high + spare
    axes = canvas.axes(frame, (start_s, end_s), (low, high), x_label="seconds")
    _mark(axes, one, shown)
    drawn = []
    for trace in traces:
        values = np.clip(trace.values[ticks], low, high)
        curve, broken = _thinned(one.time_s[ticks], values, one.gap_s, detail)
        if len(curve.at):
            drawn.append(Line(trace.label, trace.style, curve))
            _stroke(axes, Line(trace.label, trace.style, broken), 1)
    axes.set_xlim(start_s, end_s)  # phases and the stop may lie beyond it
    label = f"{title}, {note}: " + ("; ".join(map(_extent, drawn)) or "nothing was logged")
    hover = hover_data(axes, "s", drawn)
    return Drawing(title, note, frame, canvas.svg(axes), label, hover)


def _mark(axes: Axes, one: Deployment, limits: Sequence[float]) -> None:
    """Draw the phases, the limits and the stop."""
    for span in one.spans:
        if shade := PHASE_SHADES.get(span.phase, 0.06):
            axes.axvspan(span.start_s, span.end_s, color=INK, alpha=shade, linewidth=0, gid="phase")
    for limit in limits:
        axes.axhline(limit, **LIMIT_LINE)
    if one.stop_s is not None:
        axes.axvline(one.stop_s, color=STOP, linewidth=1.6, zorder=3, gid="stop")


def _finite_span(parts: Sequence[Floats], least: float) -> tuple[float, float]:
    finite = np.concatenate([part[np.isfinite(part)] for part in parts])
    if not finite.size:
        return 0.0, least
    low, high = float(finite.min()), float(finite.max())
    more = max(least - (high - low), 0.0) / 2
    return low - more, high + more


def _thinned(at: Floats, values: Floats, gap_s: float, detail: int) -> tuple[Curve, Curve]:
    """Return the points, and the same with NaN at gaps; single points are doubled, so that a round end is drawn."""
    known = np.flatnonzero(~np.isnan(values))
    at, values = at[known], values[known]
    curve = Curve(at, values, values, values)
    if not known.size:
        return curve, curve
    stretch = np.concatenate([[0], np.cumsum(np.diff(at) > gap_s)])
    ids = thinned_ids(curve, detail)
    at, values, breaks = at[ids], values[ids], np.flatnonzero(np.diff(stretch[ids])) + 1
    parts_at, parts = np.split(at, breaks), np.split(values, breaks)
    broken_at, broken = (np.concatenate([_ended(part) for part in both])[:-1] for both in (parts_at, parts))
    return Curve(at, values, values, values), Curve(broken_at, broken, broken, broken)


def _ended(part: Floats) -> Floats:
    return np.append(np.repeat(part, 2) if len(part) == 1 else part, np.nan)


def _extent(line: Line) -> str:
    low, high = float(line.curve.mean.min()), float(line.curve.mean.max())
    return f"{line.label} from {short(low)} to {short(high)}"


# -- histograms and dot plots ------------------------------------------------------------------------------------------


def histogram(canvas: Canvas, title: str, note: str, values_ms: Floats, marks_ms: Mapping[str, float]) -> Drawing:
    """Draw counts on logarithmic axes, so that one slow tick among many quick ones is visible.

    Args:
        marks_ms: vertical lines by name.
    """
    values_ms = np.maximum(values_ms, LEAST_MS)
    marks = {name: max(value, LEAST_MS) for name, value in sorted(marks_ms.items(), key=lambda item: item[1])}
    ends = [float(values_ms.min()), float(values_ms.max()), *marks.values()]
    low, high = min(ends) / 1.25, max(ends) * 1.25
    edges = np.geomspace(low, high, BINS + 1)
    counts, _ = np.histogram(values_ms, edges)
    frame = replace(USUAL, top=26)
    y = (LEAST_COUNT, max(float(counts.max()), 10.0) * 1.5)
    axes = canvas.axes(frame, (low, high), y, x_log=True, y_log=True, x_label="milliseconds, log scale")
    filled = counts > 0
    width = 0.94 * np.diff(edges)[filled]
    bars: dict[str, Any] = {"bottom": LEAST_COUNT, "align": "edge", "color": COLOURS[0][0], "gid": "bar"}
    axes.bar(edges[:-1][filled], counts[filled] - LEAST_COUNT, width, **bars)
    free = 0.0
    for name, value in marks.items():
        style = (
            LIMIT_LINE
            if name == "period"
            else {"color": INK, "linewidth": 1, "linestyle": (0, (2, 2)), "gid": "quantile"}
        )
        axes.axvline(value, **style)
        centre, half = float(axes.transData.transform((value, 1))[0]), 3.2 * len(name)
        if centre - half >= free:  # else it would overlap the name before, and the caption has it
            axes.text(value, 1.03, name, transform=axes.get_xaxis_transform(), ha="center")
            free = centre + half + 4
    listed = "; ".join(f"{name} {value:.3g} ms" for name, value in marks_ms.items())
    return Drawing(title, note, frame, canvas.svg(axes), f"{title}, {len(values_ms)} ticks: {listed}")


@dataclass(frozen=True)
class Dots:
    """A compared series: one value per row, None where it has none."""

    label: str
    style: int
    values: Sequence[float | None]
    is_open: bool = False
    """Drawn as rings."""


def dot_plot(
    canvas: Canvas, title: str, unit: str, rows: Sequence[str], dots: Sequence[Dots], commanded: float | None = None
) -> Drawing:
    """Draw one value per named row, from zero to the right; `commanded` is a vertical line."""
    names = [name if len(name) <= MAX_LETTERS else f"{name[: MAX_LETTERS - 1]}…" for name in rows]
    frame = ChartFrame(height=52 + 18 * len(rows), left=round(LETTER * max(map(len, names))) + 20)
    known = [value for one in dots for value in one.values if value is not None]
    known += [] if commanded is None else [commanded]
    low, high = min([0.0, *known]), max([0.0, *known]) or 1.0
    axes = canvas.axes(frame, (low, high + 0.04 * (high - low)), (len(rows), 0), x_label=unit)
    axes.set_yticks(np.arange(len(rows)) + 0.5, names)
    if commanded is not None:
        axes.axvline(commanded, **LIMIT_LINE)
    for one in dots:
        colour = COLOURS[one.style % len(COLOURS)][0]
        look = {"markerfacecolor": CARD, "mew": 1.5} if one.is_open else {"mew": 0}
        values = [np.nan if value is None else value for value in one.values]
        gid = "ring" if one.is_open else "dot"
        axes.plot(values, np.arange(len(rows)) + 0.5, "o", color=colour, markersize=8, clip_on=False, gid=gid, **look)
    label = "; ".join(f"{one.label}: {', '.join(map(_value, one.values))}" for one in dots)
    note = "" if commanded is None else f"asked for: {commanded:g}"
    return Drawing(title, note, frame, canvas.svg(axes), f"{title}, {unit}: {label}")


def _value(value: float | None) -> str:
    return "none" if value is None else short(value)
