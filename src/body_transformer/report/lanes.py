"""What happened when, as lanes of a table: phases, the ticks of one kind, and the seconds under them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from . import numbers
from .chart import scale
from .markup import Markup, tag
from .timeline import TimeAxis

COLUMNS = 1000
"""So many places of a lane are told apart."""
WORD = 9
"""Per cent of the width that a phase's name needs."""


def phase_lane(axis: TimeAxis) -> Markup:
    """The phases by name, with the stop, in the width there is."""
    parts = []
    for span in axis.spans:
        start, end = _percent(axis, span.start_s), _percent(axis, span.end_s)
        words = f"{span.phase}, {numbers.short(span.start_s)} to {numbers.short(span.end_s)} s"
        box = tag("rect", class_=f"phase {span.phase}", width="100%", height="100%")
        name = tag("text", span.phase, x=4, y=14) if end - start > WORD else None
        parts.append(tag("svg", tag("title", words), box, name, x=f"{start:.2f}%", width=f"{end - start:.2f}%"))
    if axis.stop_s is not None:
        at = f"{_percent(axis, axis.stop_s):.2f}%"
        parts.append(tag("line", class_="stop", x1=at, x2=at, y1=0, y2="100%"))
    return tag("svg", *parts, class_="lane tall", role="img", aria_label=", ".join(span.phase for span in axis.spans))


def tick_lane(axis: TimeAxis, ticks: npt.NDArray[np.bool_]) -> Markup:
    """A stroke for every one of these ticks, [T]; those that share a place are drawn once."""
    at = np.unique(np.round(scale(*axis.ends_s, 0, COLUMNS)(axis.at[ticks])).astype(np.int64))
    strokes = tag("path", d="".join(f"M{place} 0V9" for place in at))
    box = f"0 0 {COLUMNS} 9"
    return tag("svg", strokes, class_="lane marks", viewBox=box, preserveAspectRatio="none", aria_hidden="true")


def second_lane(axis: TimeAxis) -> Markup:
    """The seconds under the lanes."""
    names = []
    for at in axis.ticks(8):
        share = _percent(axis, at)
        anchor = "start" if share < 2 else "end" if share > 98 else "middle"
        names.append(tag("text", numbers.short(at), class_="axis", x=f"{share:.2f}%", y=12, text_anchor=anchor))
    return tag("svg", *names, class_="lane tall", aria_hidden="true")


def _percent(axis: TimeAxis, at_s: float) -> float:
    return float(scale(*axis.ends_s, 0, 100)(np.array(at_s)))
