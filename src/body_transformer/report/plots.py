"""Figures about deployments that have no time axis: how long ticks took, and values side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from . import numbers
from .chart import BOTTOM, LEFT, TOP, USUAL, Frame, axes, rounded, scale
from .curves import Floats
from .markup import Markup, tag

BINS = 60
LEAST_MS = 1e-3
"""A clock may not tell less apart, and zero has no logarithm."""
ROW = 18
LETTER, MAX_LETTERS = 6.8, 30
"""Of the names of a dot plot's rows: width of one, and how many there is room for."""


def histogram(title: str, note: str, values: Floats, marks: Mapping[str, float]) -> Markup:
    """Counts by size; both axes are logarithmic, so that one slow tick among many quick ones is seen.

    `marks` are vertical lines with their names, in milliseconds as the values are.
    """
    values = np.maximum(values, LEAST_MS)
    ends = [float(values.min()), float(values.max()), *(max(value, LEAST_MS) for value in marks.values())]
    low, high = min(ends) / 1.25, max(ends) * 1.25
    edges = np.geomspace(low, high, BINS + 1)
    counts, _ = np.histogram(values, edges)
    most = max(float(counts.max()), 10.0)
    x = scale(low, high, LEFT, USUAL.right, is_log=True)
    y = scale(0.5, most * 1.5, USUAL.base, TOP + 14, is_log=True)
    bars = [
        tag("rect", class_="bar", x=left, y=top, width=round(right - left - 0.6, 1), height=round(USUAL.base - top, 1))
        for left, right, top, count in zip(
            rounded(x(edges[:-1])), rounded(x(edges[1:])), rounded(y(np.maximum(counts, 0.5))), counts, strict=True
        )
        if count
    ]
    tens = [10.0**power for power in range(int(np.log10(most)) + 1)]
    said = "; ".join(f"{name} {value:.3g} ms" for name, value in marks.items())
    drawing = tag(
        "svg",
        axes(x, y, numbers.log_ticks(low, high), tens, "milliseconds, log scale"),
        *bars,
        *_marks(marks, lambda value: float(x(np.array(max(value, LEAST_MS))))),
        viewBox=f"0 0 {USUAL.width} {USUAL.height}",
        role="img",
        aria_label=f"{title}, {len(values)} ticks: {said}",
    )
    return tag("figure", tag("figcaption", title, " ", tag("small", note)), drawing, class_="chart")


def _marks(marks: Mapping[str, float], place: Callable[[float], float]) -> list[Markup]:
    """The lines; a name that would stand in another's is left to the caption."""
    parts, free = [], 0.0
    for name, value in sorted(marks.items(), key=lambda item: item[1]):
        at = round(place(value), 1)
        kind = "limit" if name == "period" else "quantile"
        parts.append(tag("line", class_=kind, x1=at, x2=at, y1=TOP + 6, y2=USUAL.base))
        half = 3.2 * len(name)
        if at - half >= free:
            parts.append(tag("text", name, class_="axis", x=at, y=TOP + 2, text_anchor="middle"))
            free = at + half + 4
    return parts


@dataclass(frozen=True)
class Dots:
    """One thing that is compared: a value a row, None where there is none."""

    label: str
    style: int
    values: Sequence[float | None]
    is_open: bool = False
    """Drawn as a ring."""


def dot_plot(title: str, unit: str, rows: Sequence[str], dots: Sequence[Dots], mark: float | None = None) -> Markup:
    """Rows by name, values across from zero; `mark` is a value that was asked for."""
    names = [name if len(name) <= MAX_LETTERS else f"{name[: MAX_LETTERS - 1]}…" for name in rows]
    left = round(LETTER * max(map(len, names))) + 20
    frame = Frame(USUAL.width, TOP + ROW * len(rows) + BOTTOM)
    there = [value for one in dots for value in one.values if value is not None] + ([] if mark is None else [mark])
    low, high = min([0.0, *there]), max([0.0, *there]) or 1.0
    x = scale(low, high + 0.04 * (high - low), left, frame.right)
    parts = []
    for k, name in enumerate(names):
        y = TOP + ROW * (k + 0.5)
        parts.append(tag("line", class_="grid", x1=left, x2=frame.right, y1=y, y2=y))
        parts.append(tag("text", name, class_="axis", x=left - 8, y=y + 4, text_anchor="end"))
    for at in numbers.ticks(low, high, 5):
        place = round(float(x(np.array(at))), 1)
        parts.append(tag("text", numbers.short(at), class_="axis", x=place, y=frame.base + 16, text_anchor="middle"))
    if mark is not None:
        place = round(float(x(np.array(mark))), 1)
        parts.append(tag("line", class_="limit", x1=place, x2=place, y1=TOP, y2=frame.base))
    parts.append(tag("line", class_="base", x1=left, x2=frame.right, y1=frame.base, y2=frame.base))
    middle = (left + frame.right) / 2
    parts.append(tag("text", unit, class_="axis", x=middle, y=frame.height - 6, text_anchor="middle"))
    for one in dots:
        parts += _row_of_dots(one, [float(x(np.array(v))) if v is not None else None for v in one.values])
    said = "; ".join(f"{one.label}: {', '.join(_said(value) for value in one.values)}" for one in dots)
    drawing = tag(
        "svg", *parts, viewBox=f"0 0 {frame.width} {frame.height}", role="img", aria_label=f"{title}, {unit}: {said}"
    )
    asked = None if mark is None else tag("small", f" asked for: {mark:g}")
    return tag("figure", tag("figcaption", title, asked), drawing, class_="chart")


def _row_of_dots(one: Dots, places: Sequence[float | None]) -> list[Markup]:
    kind = f"{'ring' if one.is_open else 'dot'} s{one.style}"
    return [
        tag("circle", class_=kind, cx=round(place, 1), cy=TOP + ROW * (k + 0.5), r=4)
        for k, place in enumerate(places)
        if place is not None
    ]


def _said(value: float | None) -> str:
    return "none" if value is None else numbers.short(value)
