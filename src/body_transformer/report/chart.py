"""A learning curve as inline SVG; a script on the page shows the values under the pointer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from . import numbers
from .curves import Curve, Floats
from .markup import Markup, join, tag

# In units of the drawing, which is scaled to the width there is.
WIDTH, HEIGHT = 440, 270
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 12, 40
SPARSE, DENSE = 12, 150
"""Up to so many points have dots; the line of more than so many is thin, or noise would fill the drawing."""
Scale = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Frame:
    """How large a drawing is; its margins are the same everywhere, as the script knows them."""

    width: int = WIDTH
    height: int = HEIGHT

    @property
    def right(self) -> int:
        return self.width - RIGHT

    @property
    def base(self) -> int:
        return self.height - BOTTOM


USUAL = Frame()


@dataclass(frozen=True)
class Line:
    """A curve and how it looks."""

    label: str
    style: int
    """Number of the arm's look, see `look.py`."""
    curve: Curve


def chart(title: str, x_label: str, lines: Sequence[Line]) -> Markup:
    """A figure with its title; the vertical axis is logarithmic where a positive quantity spans decades."""
    x_low, x_high = span([line.curve.at for line in lines])
    x_low = 0.0 if 0 <= x_low < 0.2 * x_high else x_low
    y_low, y_high = span([part for line in lines for part in (line.curve.low, line.curve.high)])
    is_log = "loss" in title and y_low > 0 and y_high / y_low > 20
    if not is_log:
        y_low, y_high = _padded(y_low, y_high)
    x = scale(x_low, x_high, LEFT, WIDTH - RIGHT)
    y = scale(y_low, y_high, HEIGHT - BOTTOM, TOP, is_log)
    y_ticks = numbers.log_ticks(y_low, y_high) if is_log else numbers.ticks(y_low, y_high)
    drawing = tag(
        "svg",
        axes(x, y, numbers.ticks(x_low, x_high), y_ticks, x_label),
        *(_band(line, x, y) for line in lines if line.curve.has_band),
        *(_line(line, x, y) for line in lines),
        tag("g", class_="pointer"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{title} by {x_label}: " + "; ".join(_ends(line) for line in lines),
        data_lines=json.dumps([data(line, x, y) for line in lines], separators=(",", ":")),
        data_x=x_label,
    )
    heading = join(title, tag("small", " log scale") if is_log else None)
    return tag("figure", tag("figcaption", heading), drawing, class_="chart")


def _ends(line: Line) -> str:
    return f"{line.label} ends at {numbers.short(float(line.curve.mean[-1]))}"


def data(line: Line, x: Scale, y: Scale) -> dict[str, object]:
    """What the script needs: places in the drawing, and values."""
    curve = line.curve
    data: dict[str, object] = {
        "label": line.label,
        "style": line.style,
        "x": rounded(x(curve.at)),
        "y": rounded(y(curve.mean)),
        "at": [float(f"{value:.7g}") for value in curve.at],
        "mean": [float(f"{value:.4g}") for value in curve.mean],
    }
    if curve.has_band:
        data["low"], data["high"] = ([float(f"{value:.4g}") for value in part] for part in (curve.low, curve.high))
    return data


# -- places ------------------------------------------------------------------------------------------------------------


def span(parts: Sequence[Floats]) -> tuple[float, float]:
    low, high = min(float(part.min()) for part in parts), max(float(part.max()) for part in parts)
    return (low, high) if high > low else (low, low + 1.0)


def _padded(low: float, high: float) -> tuple[float, float]:
    """Normalised values keep the whole of 0 to 1 in sight, others touch neither edge; zero is kept if it is near."""
    if low >= 0 and 0.1 < high <= 1:
        return 0.0, 1.0
    spare = 0.06 * (high - low)
    return (0.0 if 0 <= low < 0.5 * high else low - spare), high + spare


def scale(low: float, high: float, start: float, end: float, is_log: bool = False) -> Scale:
    if is_log:
        linear = scale(math.log10(low), math.log10(high), start, end)
        return lambda values: linear(np.log10(values))
    return lambda values: start + (values - low) / (high - low) * (end - start)


# -- strokes -----------------------------------------------------------------------------------------------------------


def axes(
    x: Scale, y: Scale, x_ticks: Sequence[float], y_ticks: Sequence[float], x_label: str, frame: Frame = USUAL
) -> Markup:
    """Grid, numbers, base line and the name of what goes across."""
    parts, base = [], frame.base
    for value, place in zip(y_ticks, rounded(y(np.array(y_ticks, dtype=np.float64))), strict=True):
        parts.append(tag("line", class_="grid", x1=LEFT, x2=frame.right, y1=place, y2=place))
        parts.append(tag("text", numbers.short(value), class_="axis", x=LEFT - 6, y=place + 4, text_anchor="end"))
    for value, place in zip(x_ticks, rounded(x(np.array(x_ticks, dtype=np.float64))), strict=True):
        parts.append(tag("text", numbers.short(value), class_="axis", x=place, y=base + 16, text_anchor="middle"))
    parts.append(tag("line", class_="base", x1=LEFT, x2=frame.right, y1=base, y2=base))
    middle = (LEFT + frame.right) / 2
    parts.append(tag("text", x_label, class_="axis", x=middle, y=frame.height - 6, text_anchor="middle"))
    return join(*parts)


def _band(line: Line, x: Scale, y: Scale) -> Markup:
    curve = line.curve
    across = np.concatenate([curve.at, curve.at[::-1]])
    edge = np.concatenate([curve.high, curve.low[::-1]])
    return tag("path", class_=f"band s{line.style}", d=path(x(across), y(edge)) + "Z")


def _line(line: Line, x: Scale, y: Scale) -> Markup:
    curve = line.curve
    across, along = x(curve.at), y(curve.mean)
    is_dense = len(across) > DENSE
    stroke = tag("path", class_=f"line s{line.style}{' dense' * is_dense}", d=path(across, along))
    if len(across) > SPARSE:
        return stroke
    dots = (
        tag("circle", class_=f"dot s{line.style}", cx=cx, cy=cy, r=3)
        for cx, cy in zip(rounded(across), rounded(along), strict=True)
    )
    return join(stroke, *dots)


def path(across: Floats, along: Floats) -> str:
    points = (f"{a:g},{b:g}" for a, b in zip(rounded(across), rounded(along), strict=True))
    return "M" + "L".join(points)


def rounded(places: Floats) -> list[float]:
    return [round(float(place), 1) for place in places]
