"""The charts of the pages: learning curves, quantities and events over time, histograms and dot plots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from .curves import Curve, Floats, thinned_ids
from .deployment import Deployment
from .load import Paths
from .svg import CARD, COLOURS, INK, NUM_STYLES, STOP, ChartFrame, Drawing, Line, drawing, new_axes, stroke_style
from .text import grouped, short

USUAL, SMALL = ChartFrame(), ChartFrame(360, 210)
WIDE, ABOVE, ROW = 1000, 26, 18
"""Width of a chart with a card of its own, margin for names above the axes, and height of a named row."""
FEW, MANY = 12, 150
"""Curves of up to FEW points have dots. Curves of more than MANY points are thin, or noise would fill the drawing."""
BINS = 60
LEAST_COUNT = 0.51
"""Bottom of a histogram's logarithmic axis. It is below 1, so that a single tick has a visible bar, and above 0.5, so
that this label is not drawn."""
LEAST_MS = 1e-3
"""Smallest time in a histogram: a clock may not resolve less, and zero has no logarithm."""
LETTER, MAX_LETTERS = 6.8, 30
"""Width of a letter in pixels, and longest name of a row in letters."""
DETAIL = 640
"""Default of `detail` in `time_chart`."""
PHASE_SHADES = {"policy": 0.0, "hold": 0.1, "damping": 0.14}
"""Opacity behind a phase; 0.06 for any other."""
LIMIT_LINE: dict[str, Any] = {"color": STOP, "linewidth": 1, "linestyle": (0, (4, 3)), "gid": "limit"}
DOT: dict[str, Any] = {"marker": "o", "linestyle": "", "mew": 0, "clip_on": False, "gid": "dot"}
RING = {**DOT, "markerfacecolor": CARD, "mew": 1.5, "gid": "ring"}
QUANTILE_LINE: dict[str, Any] = {"color": INK, "linewidth": 1, "linestyle": (0, (2, 2)), "gid": "quantile"}

# -- learning curves ---------------------------------------------------------------------------------------------------


def curves_chart(title: str, x_label: str, lines: Sequence[Line]) -> Drawing:
    """Draw learning curves; the vertical axis of a loss that spans decades is logarithmic."""
    x_low, x_high = _span([line.curve.at for line in lines])
    x_low = 0.0 if 0 <= x_low < 0.2 * x_high else x_low
    y_low, y_high = _span([part for line in lines for part in (line.curve.low, line.curve.high)])
    is_log = "loss" in title and y_low > 0 and y_high / y_low > 20
    y = (y_low, y_high) if is_log else _padded(y_low, y_high)
    axes = new_axes(USUAL, (x_low, x_high), y, y_log=is_log, x_label=x_label)
    for line in lines:
        curve, colour = line.curve, stroke_style(line.style)["color"]
        if curve.has_band:
            band: dict[str, Any] = {"color": colour, "alpha": 0.16, "linewidth": 0, "gid": "band"}
            axes.fill_between(curve.at, curve.low, curve.high, clip_on=False, **band)
        _stroke(axes, curve.at, curve.mean, line.style, 1 if len(curve.at) > MANY else 2)
        if len(curve.at) <= FEW:
            axes.plot(curve.at, curve.mean, color=colour, markersize=6, **DOT)
    ends = [f"{line.label} ends at {short(float(line.curve.mean[-1]))}" for line in lines]
    note = "log scale" if is_log else ""
    return drawing(axes, title, note, f"{title} by {x_label}: {'; '.join(ends)}", lines, x_label)


def _stroke(axes: Axes, at: Floats, values: Floats, style: int, width: float) -> None:
    look = {"linewidth": width, "solid_capstyle": "round", "gid": "line", **stroke_style(style)}
    axes.plot(at, values, clip_on=False, **look)


def _span(parts: Sequence[Floats]) -> tuple[float, float]:
    low, high = min(float(part.min()) for part in parts), max(float(part.max()) for part in parts)
    return (low, high) if high > low else (low, low + 1.0)


def _padded(low: float, high: float) -> tuple[float, float]:
    """Add a margin; normalised values keep the whole range from 0 to 1, and zero is included if it is near."""
    if low >= 0 and 0.1 < high <= 1:
        return 0.0, 1.0
    spare = 0.06 * (high - low)
    return (0.0 if 0 <= low < 0.5 * high else low - spare), high + spare


def paths_chart(title: str, paths: Paths) -> Drawing:
    """Draw paths from above: ahead is up, and left is left. Commanded paths are dashed."""
    walked, commanded = paths
    every = np.concatenate([np.zeros((1, 2)), *walked, *commanded])
    low, high = every.min(0), every.max(0)
    half = 0.55 * max(float((high - low).max()), 1.0)
    (ahead, left), frame = (low + high) / 2, replace(USUAL, width=380, height=380)
    axes = new_axes(frame, (left + half, left - half), (ahead - half, ahead + half), x_label="m to the left")
    for path in commanded:
        axes.plot(path[:, 1], path[:, 0], **LIMIT_LINE)
    for number, path in enumerate(walked):
        _stroke(axes, path[:, 1], path[:, 0], number % NUM_STYLES, 1)
        axes.plot(path[-1:, 1], path[-1:, 0], color=stroke_style(number)["color"], markersize=6, **DOT)
    ends = "; ".join(f"{short(float(x))} m ahead, {short(float(y))} m to the left" for x, y in (p[-1] for p in walked))
    return drawing(axes, title, "m ahead, commanded paths are dashed", f"{title}, the ends: {ends}")


# -- quantities and events over time -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Series:
    """Values per tick of a deployment or per row of a dot plot, with their label and style; NaN where there is none."""

    label: str
    style: int
    values: Floats
    is_open: bool = False
    """Whether its dots are drawn as rings."""


def time_chart(
    one: Deployment,
    title: str,
    note: str,
    traces: Sequence[Series],
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
        note: the unit and other facts, shown after the title.
        only_near: draw a limit only near the values, not at any distance.
        least: smallest range of the vertical axis.
        trusted: [T] bool, the ticks whose values set the vertical axis; values beyond it are drawn at its edge.
        window_s: drawn part of the time; by default all of it.
        detail: longest line, in points, that is not thinned. A thinned line keeps the lowest and highest point of every
            stretch, about `detail / 2` points together.
    """
    start_s, end_s = window_s or one.ends_s
    ticks = (one.time_s >= start_s) & (one.time_s <= end_s)
    believed = ticks if trusted is None else ticks & trusted
    low, high = _finite_span([trace.values[believed] for trace in traces], least)
    if only_near:
        limits = [limit for limit in limits if 2 * low - high <= limit <= 2 * high - low]
    low, high = min([low, *limits]), max([high, *limits])
    spare = 0.06 * (high - low)
    low, high = low - spare, high + spare
    axes = new_axes(frame, (start_s, end_s), (low, high), x_label="seconds")
    for limit in limits:
        axes.axhline(limit, **LIMIT_LINE)
    lines = []
    for trace in traces:
        curve, breaks = _thinned(one.time_s[ticks], np.clip(trace.values[ticks], low, high), one.gap_s, detail)
        if len(curve.at):
            lines.append(Line(trace.label, trace.style, curve))
            _stroke(axes, _broken(curve.at, breaks), _broken(curve.mean, breaks), trace.style, 1)
    _mark_phases(axes, one)
    axes.set_xlim(start_s, end_s)  # phases and the stop may lie beyond it
    ends = [(line.label, float(line.curve.mean.min()), float(line.curve.mean.max())) for line in lines]
    ranges = "; ".join(f"{label} from {short(lowest)} to {short(highest)}" for label, lowest, highest in ends)
    return drawing(axes, title, note, f"{title}, {note}: {ranges or 'nothing was logged'}", lines, "s")


def events_chart(one: Deployment) -> Drawing:
    """Draw the phases of a deployment, with a row per reason for the ticks in which the runtime intervened."""
    counts = sorted(one.facts.interventions.items(), key=lambda item: -item[1])
    rows = [f"{reason}: {grouped(count)}" for reason, count in counts]
    start_s, end_s = one.ends_s
    axes = _axes_of_rows(rows, (start_s, end_s), "seconds", WIDE, ABOVE)
    _mark_phases(axes, one)
    for row, (reason, _) in enumerate(counts):
        pixels = np.unique(np.round((one.time_s[one.ticks_with(reason)] - start_s) / (end_s - start_s) * WIDE))
        at = np.repeat(start_s + pixels / WIDE * (end_s - start_s), 3)
        axes.plot(at, np.resize([row + 0.1, row + 0.9, np.nan], len(at)), color=STOP, linewidth=1, gid="intervention")
    _name_above(axes, [((span.start_s + span.end_s) / 2, span.phase) for span in one.spans])
    title = "Phases and interventions of the runtime"
    return drawing(axes, "", "", f"{title}: {'; '.join(rows) or 'none'}")


def _mark_phases(axes: Axes, one: Deployment) -> None:
    """Draw the phases and the stop."""
    for span in one.spans:
        if shade := PHASE_SHADES.get(span.phase, 0.06):
            axes.axvspan(span.start_s, span.end_s, color=INK, alpha=shade, linewidth=0, gid="phase")
    if one.stop_s is not None:
        axes.axvline(one.stop_s, color=STOP, linewidth=1.6, zorder=3, gid="stop")


def _name_above(axes: Axes, names: Iterable[tuple[float, str]]) -> None:
    """Write names above these places on the horizontal axis; a name that would overlap the one before is left out."""
    free = 0.0
    for at, name in names:
        centre, half = float(axes.transData.transform((at, 1))[0]), 3.2 * len(name)
        if centre - half >= free:
            axes.annotate(name, (at, 1), (0, 6), axes.get_xaxis_transform(), "offset points", ha="center")
            free = centre + half + 4


def _finite_span(parts: Sequence[Floats], least: float) -> tuple[float, float]:
    finite = np.concatenate([part[np.isfinite(part)] for part in parts])
    if not finite.size:
        return 0.0, least
    low, high = float(finite.min()), float(finite.max())
    more = max(least - (high - low), 0.0) / 2
    return low - more, high + more


def _thinned(at: Floats, values: Floats, gap_s: float, detail: int) -> tuple[Curve, npt.NDArray[np.int64]]:
    """Return the known points, and the indices after gaps."""
    known = np.flatnonzero(~np.isnan(values))
    at, values = at[known], values[known]
    whole = Curve(at, values, values, values)
    stretch = np.cumsum(np.diff(at, prepend=at[:1]) > gap_s)
    ids = thinned_ids(whole, detail)
    return whole.at_ids(ids), np.flatnonzero(np.diff(stretch[ids])) + 1


def _broken(values: Floats, breaks: npt.NDArray[np.int64]) -> Floats:
    """Put NaN at the breaks; single points are doubled, so that a round end is drawn."""
    parts = [np.repeat(part, 2) if len(part) == 1 else part for part in np.split(values, breaks)]
    return np.concatenate([np.append(part, np.nan) for part in parts])[:-1]


# -- histograms and dot plots ------------------------------------------------------------------------------------------


def histogram(title: str, note: str, values_ms: Floats, marks_ms: Mapping[str, float]) -> Drawing:
    """Draw counts on logarithmic axes, so that one slow tick among many quick ones is visible.

    Args:
        marks_ms: vertical lines by name.
    """
    values_ms = np.maximum(values_ms, LEAST_MS)
    marks = sorted(((max(value, LEAST_MS), name) for name, value in marks_ms.items()), key=itemgetter(0))
    ends = [float(values_ms.min()), float(values_ms.max()), *(value for value, _ in marks)]
    low, high = min(ends) / 1.25, max(ends) * 1.25
    counts, edges = np.histogram(values_ms, np.geomspace(low, high, BINS + 1))
    y = (LEAST_COUNT, max(float(counts.max()), 10.0) * 1.5)
    frame = replace(USUAL, top=ABOVE)
    axes = new_axes(frame, (low, high), y, x_log=True, y_log=True, x_label="milliseconds, log scale")
    filled = counts > 0
    width = 0.94 * np.diff(edges)[filled]
    bars: dict[str, Any] = {"bottom": LEAST_COUNT, "align": "edge", "color": COLOURS[0][0], "gid": "bar"}
    axes.bar(edges[:-1][filled], counts[filled] - LEAST_COUNT, width, **bars)
    for value, name in marks:
        axes.axvline(value, **LIMIT_LINE if name == "period" else QUANTILE_LINE)
    _name_above(axes, marks)  # the note has all of them
    listed = "; ".join(f"{name} {value:.3g} ms" for name, value in marks_ms.items())
    return drawing(axes, title, note, f"{title}, {len(values_ms)} ticks: {listed}")


def dot_plot(
    title: str, unit: str, rows: Sequence[str], dots: Sequence[Series], commanded: float | None = None
) -> Drawing:
    """Draw one value per named row, from zero to the right; `commanded` is a vertical line."""
    drawn = np.concatenate([[0.0 if commanded is None else commanded, 0.0], *(one.values for one in dots)])
    low, high = float(np.nanmin(drawn)), float(np.nanmax(drawn)) or 1.0
    axes = _axes_of_rows(rows, (low, high + 0.04 * (high - low)), unit)
    if commanded is not None:
        axes.axvline(commanded, **LIMIT_LINE)
    for one in dots:
        colour = COLOURS[one.style % len(COLOURS)][0]
        axes.plot(one.values, np.arange(len(rows)) + 0.5, color=colour, markersize=8, **RING if one.is_open else DOT)
    texts = [["none" if np.isnan(value) else short(value) for value in one.values] for one in dots]
    label = "; ".join(f"{one.label}: {', '.join(values)}" for one, values in zip(dots, texts, strict=True))
    note = "" if commanded is None else f"commanded: {commanded:g}"
    return drawing(axes, title, note, f"{title}, {unit}: {label}")


def _axes_of_rows(
    rows: Sequence[str], x: tuple[float, float], x_label: str, width: int = USUAL.width, top: int = USUAL.top
) -> Axes:
    """Return axes with a named row per entry, from top to bottom."""
    names = [name if len(name) <= MAX_LETTERS else f"{name[: MAX_LETTERS - 1]}…" for name in rows]
    left = round(LETTER * max(map(len, names), default=0)) + 20
    frame = ChartFrame(width, top + USUAL.bottom + ROW * max(len(rows), 1), left=left, top=top)
    axes = new_axes(frame, x, (max(len(rows), 1), 0), x_label=x_label)
    axes.set_yticks(np.arange(len(rows)) + 0.5, names)
    return axes
