"""A quantity over the time of a deployment as inline SVG, with its limits, the phases and the stop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from . import numbers
from .chart import LEFT, TOP, Frame, Line, Scale, axes, data, path, rounded, scale
from .curves import Curve, Floats, kept
from .deployments import Span
from .markup import Markup, join, tag

SMALL = Frame(360, 210)
DETAIL = 640
"""Points of a line before it is thinned: of every stretch, the lowest and the highest stay, so half as many."""


@dataclass(frozen=True)
class Trace:
    """A line: [T] values, NaN where there is none."""

    label: str
    style: int
    values: Floats


@dataclass(frozen=True)
class TimeAxis:
    """What all charts of a deployment share."""

    at: Floats
    """[T] s"""
    spans: Sequence[Span]
    stop_s: float | None
    gap_s: float
    """A line is broken where nothing came for longer than this."""
    detail: int = DETAIL

    @property
    def ends_s(self) -> tuple[float, float]:
        return self.spans[0].start_s, self.spans[-1].end_s

    def ticks(self, about: int) -> list[float]:
        """Round numbers of seconds."""
        return numbers.ticks(*self.ends_s, about)

    def within(self, start_s: float, end_s: float) -> tuple[TimeAxis, npt.NDArray[np.bool_]]:
        """(A part of it, [T] which ticks are in it)"""
        ticks = (self.at >= start_s) & (self.at <= end_s)
        spans = [
            replace(span, start_s=max(span.start_s, start_s), end_s=min(span.end_s, end_s))
            for span in self.spans
            if span.start_s < end_s and span.end_s > start_s
        ]
        stop_s = self.stop_s if self.stop_s is not None and start_s <= self.stop_s <= end_s else None
        return replace(self, at=self.at[ticks], spans=spans, stop_s=stop_s), ticks


@dataclass(frozen=True)
class Limits:
    """Where a quantity should stay; either end may be open."""

    low: float | None = None
    high: float | None = None
    always: bool = True
    """Drawn however far off they are, else only if they are near the values."""

    def shown(self, low: float, high: float) -> list[float]:
        near = high - low
        ends = [end for end in (self.low, self.high) if end is not None]
        return [end for end in ends if self.always or low - near <= end <= high + near]


def timeline(
    title: str,
    note: str,
    traces: Sequence[Trace],
    axis: TimeAxis,
    limits: Limits | None = None,
    least: float = 0.2,
    trusted: npt.NDArray[np.bool_] | None = None,
    frame: Frame = SMALL,
) -> Markup:
    """A figure.

    Args:
        note: after the title, the unit and whatever else is to be said.
        least: how much the vertical axis spans at least.
        trusted: [T] bool, the ticks whose values set the vertical axis; what lies beyond it is drawn at its edge.
    """
    low, high = _range([trace.values if trusted is None else trace.values[trusted] for trace in traces], least)
    shown = limits.shown(low, high) if limits else []
    low, high = min([low, *shown]), max([high, *shown])
    spare = 0.06 * (high - low)
    x = scale(*axis.ends_s, LEFT, frame.right)
    y = scale(low - spare, high + spare, frame.base, TOP)
    lines = [(trace, *_thinned(trace, axis, low - spare, high + spare)) for trace in traces]
    drawn = [Line(trace.label, trace.style, curve) for trace, curve, _ in lines if len(curve.at)]
    drawing = tag(
        "svg",
        _phases(axis, x, frame),
        axes(x, y, axis.ticks(5), numbers.ticks(low, high, 4), "seconds", frame),
        *(_limit(float(y(np.array(end))), frame) for end in shown),
        *(_stroke(trace, curve, breaks, x, y) for trace, curve, breaks in lines if len(curve.at)),
        _stop(axis, x, frame),
        tag("g", class_="pointer"),
        viewBox=f"0 0 {frame.width} {frame.height}",
        role="img",
        aria_label=f"{title}, {note}: " + ("; ".join(map(_extent, drawn)) or "nothing was logged"),
        data_lines=json.dumps([data(line, x, y) for line in drawn], separators=(",", ":")) if drawn else None,
        data_x="s",
    )
    return tag("figure", tag("figcaption", title, " ", tag("small", note)), drawing, class_="chart")


def _range(parts: Sequence[Floats], least: float) -> tuple[float, float]:
    finite = [part[np.isfinite(part)] for part in parts]
    there = [part for part in finite if part.size]
    if not there:
        return 0.0, least
    low, high = min(float(part.min()) for part in there), max(float(part.max()) for part in there)
    more = max(least - (high - low), 0.0) / 2
    return low - more, high + more


def _thinned(trace: Trace, axis: TimeAxis, low: float, high: float) -> tuple[Curve, list[int]]:
    """(what is drawn, before which of its points the line is broken)"""
    there = np.flatnonzero(~np.isnan(trace.values))
    at, values = axis.at[there], np.clip(trace.values[there], low, high)
    if not there.size:
        return Curve(at, values, values, values), []
    stretch = np.concatenate([[0], np.cumsum(np.diff(at) > axis.gap_s)])
    ids = kept(Curve(at, values, values, values), axis.detail)
    values = values[ids]
    return Curve(at[ids], values, values, values), [int(k) + 1 for k in np.flatnonzero(np.diff(stretch[ids]))]


def _extent(line: Line) -> str:
    low, high = float(line.curve.mean.min()), float(line.curve.mean.max())
    return f"{line.label} from {numbers.short(low)} to {numbers.short(high)}"


# -- strokes -----------------------------------------------------------------------------------------------------------


def _phases(axis: TimeAxis, x: Scale, frame: Frame) -> Markup:
    parts = []
    for span in axis.spans:
        start, end = rounded(x(np.array([span.start_s, span.end_s])))
        size = {"x": start, "y": TOP, "width": round(end - start, 1), "height": frame.base - TOP}
        parts.append(tag("rect", class_=f"phase {span.phase}", **size))
    return join(*parts)


def _limit(place: float, frame: Frame) -> Markup:
    return tag("line", class_="limit", x1=LEFT, x2=frame.right, y1=round(place, 1), y2=round(place, 1))


def _stop(axis: TimeAxis, x: Scale, frame: Frame) -> Markup | None:
    if axis.stop_s is None:
        return None
    place = round(float(x(np.array(axis.stop_s))), 1)
    return tag("line", class_="stop", x1=place, x2=place, y1=TOP, y2=frame.base)


def _stroke(trace: Trace, curve: Curve, breaks: Sequence[int], x: Scale, y: Scale) -> Markup:
    across, along = x(curve.at), y(curve.mean)
    bounds = [0, *breaks, len(across)]
    pieces = (slice(start, end) for start, end in pairwise(bounds))
    strokes = "".join(_piece(across[piece], along[piece]) for piece in pieces)
    return tag("path", class_=f"line dense s{trace.style}", d=strokes)


def _piece(across: Floats, along: Floats) -> str:
    """A single point is a stroke of no length, which the round ends make a dot."""
    return path(np.repeat(across, 2), np.repeat(along, 2)) if len(across) == 1 else path(across, along)
