"""Draw with matplotlib as SVG inside a page, in colours that follow the page's style sheet."""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ..text import printable
from .curves import Curve
from .text import short

# (on white, on black): Okabe and Ito's colours with Tol's indigo, which differ for common kinds of colour blindness.
COLOURS = (
    ("#0072b2", "#4ba6e6"),
    ("#d55e00", "#f58a4b"),
    ("#009e73", "#2cc79b"),
    ("#c0609a", "#e39ac6"),
    ("#b98200", "#f0be4a"),
    ("#332288", "#9c90f2"),
    ("#4a9cc9", "#a5dcff"),
    ("#555555", "#bbbbbb"),
)
DASHES = ((), (7, 4), (2, 3), (9, 3, 2, 3))
"""Line styles; after the last colour, the colours repeat with the next dashes."""
NUM_STYLES = len(COLOURS) * len(DASHES)
STYLED = ("bot-hard", "transformer", "mlp", "bot-mix", "bot-soft", "bot-hard-random", "bot-mix-random")
"""Variants in the order of their styles, which are the same on every page."""
INK, SOFT, GRID, CARD, STOP = "#1d2126", "#5d6570", "#ebe8e3", "#ffffff", "#c0271d"
VARIABLES = {INK: "var(--ink)", SOFT: "var(--soft)", GRID: "var(--grid)", CARD: "var(--card)", STOP: "var(--stop)"}
VARIABLES |= {light: f"var(--c{index})" for index, (light, _) in enumerate(COLOURS)}
"""Colours of a drawing -> variables of the style sheet, which have other values in dark mode."""
CLASSES = {"line", "band", "dot", "ring", "bar", "limit", "stop", "quantile", "phase", "intervention"}
"""Group ids of a drawing's parts, which become classes in the page."""
PAGE_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "0",
    "font.size": 12,
    "font.sans-serif": ["DejaVu Sans"],
    "text.color": SOFT,
    "text.parse_math": False,  # a `$` in a name does not begin a formula
    "path.simplify": False,
    "axes.axisbelow": True,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "axes.labelpad": 3,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "grid.color": GRID,
    "grid.linewidth": 1,
    "xtick.bottom": False,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "ytick.left": False,
}
"""Settings of matplotlib for all drawings of a page; the user's settings have no effect on them."""
_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML does not allow, but a name may contain."""
_HREF = "{http://www.w3.org/1999/xlink}href"


def label_styles(labels: Iterable[str]) -> dict[str, int]:
    """Return a style number per label; labels share a style only if there are more labels than styles."""
    labels = list(dict.fromkeys(labels))
    chosen = {label: STYLED.index(label) for label in labels if label in STYLED}
    free = [style for style in range(NUM_STYLES) if style not in chosen.values()]
    others = [label for label in labels if label not in STYLED]
    return chosen | {label: free[index % len(free)] for index, label in enumerate(others)}


def stroke_style(style: int) -> dict[str, Any]:
    """Return colour and dashes as matplotlib's arguments."""
    dashes = DASHES[style // len(COLOURS) % len(DASHES)]
    return {"color": COLOURS[style % len(COLOURS)][0], "linestyle": (0, dashes) if dashes else "-"}


# -- axes --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChartFrame:
    """Size of a drawing and its margins in pixels."""

    width: int = 440
    height: int = 270
    left: int = 52
    right: int = 14
    top: int = 12
    bottom: int = 40


def new_axes(
    frame: ChartFrame,
    x: tuple[float, float],
    y: tuple[float, float],
    x_log: bool = False,
    y_log: bool = False,
    x_label: str = "",
) -> Axes:
    """Return empty axes with these ranges; the next call may reuse them."""
    axes = _axes(frame, x_log, y_log)
    for artist in [*axes.lines, *axes.collections, *axes.patches, *axes.texts]:
        artist.remove()
    axes.set(xlim=x, ylim=y, xlabel=x_label)
    for axis, is_log, (low, high), count in ((axes.xaxis, x_log, x, 6), (axes.yaxis, y_log, y, 5)):
        subs = (1, 2, 5) if is_log and high / low < 1e3 else (1,)
        rounded = MaxNLocator(count, steps=[1, 2, 2.5, 5, 10])
        axis.set_major_locator(LogLocator(subs=subs, numticks=9) if is_log else rounded)
    return axes


@cache
def _axes(frame: ChartFrame, x_log: bool, y_log: bool) -> Axes:
    """Return axes that drawings of one size and scale share, because making axes takes most of a drawing's time."""
    figure = Figure(figsize=(frame.width / 72, frame.height / 72), dpi=72)  # print_svg would set it later
    figure.patch.set_visible(False)
    inner = (frame.width - frame.left - frame.right, frame.height - frame.top - frame.bottom)
    place = (frame.left / frame.width, frame.bottom / frame.height, inner[0] / frame.width, inner[1] / frame.height)
    axes = figure.add_axes(place, xscale="log" if x_log else "linear", yscale="log" if y_log else "linear")
    axes.patch.set_visible(False)
    axes.grid(axis="y")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    return axes


# -- drawings ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A curve with its label and style number."""

    label: str
    style: int
    curve: Curve


@dataclass(frozen=True)
class Drawing:
    """A drawing and its texts, as the templates show it."""

    title: str
    note: str
    """Smaller text after the title."""
    size: tuple[int, int]
    svg: Markup
    label: str
    """Description for readers who cannot see the drawing."""
    hover: Mapping[str, str]
    """Data attributes from which a script shows the values under the pointer."""


def drawing(axes: Axes, title: str, note: str, label: str, lines: Sequence[Line] = (), x_name: str = "") -> Drawing:
    """Return the drawing on the axes; the page shows the values of `lines` under the pointer."""
    mpl.rcParams["svg.hashsalt"] = str(int(mpl.rcParams["svg.hashsalt"]) + 1)  # ids are unique in a page
    stream, figure = io.StringIO(), axes.get_figure(root=True)
    assert figure is not None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # browsers have more fonts
        FigureCanvasSVG(figure).print_svg(stream, metadata={"Date": None})  # type: ignore[no-untyped-call]
    width, height = (round(72 * inches) for inches in figure.get_size_inches())
    hover = _hover_data(axes, (width, height), x_name, lines) if lines else {}
    return Drawing(title, note, (width, height), _inline(stream.getvalue()), label, hover)


def _hover_data(axes: Axes, size: tuple[int, int], x_name: str, lines: Sequence[Line]) -> dict[str, str]:
    """Return the lines and the position of the axes for the page's script."""
    left, bottom, right, top = axes.get_position().extents * np.tile(size, 2)
    area = {
        "x": [round(left, 1), round(right, 1), *axes.get_xlim()],
        "y": [round(size[1] - bottom, 1), round(size[1] - top, 1), *axes.get_ylim()],
        "log": axes.get_yscale() == "log",
    }
    content = [_line_data(line) for line in lines]
    area_text, lines_text = (json.dumps(part, separators=(",", ":")) for part in (area, content))
    return {"data-x": x_name, "data-area": area_text, "data-lines": lines_text}


def _line_data(line: Line) -> dict[str, object]:
    curve = line.curve
    parts = {"at": (curve.at, 7), "mean": (curve.mean, 4)}
    if curve.has_band:
        parts |= {"low": (curve.low, 4), "high": (curve.high, 4)}
    rounded = {name: [float(f"{value:.{digits}g}") for value in part] for name, (part, digits) in parts.items()}
    return {"label": line.label, "style": line.style, **rounded}


def _inline(text: str) -> Markup:
    """Return matplotlib's SVG as a part of a page; the names of groups become their classes."""
    root = ElementTree.fromstring(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text))
    for element in root.iter():
        element.tag, element.tail = element.tag.rpartition("}")[2], None
        element.text = printable(element.text or "") if element.tag == "text" else None
        if element.tag == "defs" and element.find("{*}style") is not None:
            element.clear()
        attributes = element.attrib
        if element.tag == "g" and (name := attributes.pop("id", "")) in CLASSES:
            attributes["class"] = name
        if "d" in attributes:
            attributes["d"] = " ".join(re.sub(r"(\.\d)\d+", r"\1", attributes["d"]).split())
        if "style" in attributes:  # colours become variables of the style sheet
            attributes["style"] = re.sub("|".join(VARIABLES), lambda found: VARIABLES[found[0]], attributes["style"])
        if _HREF in attributes:
            attributes["href"] = attributes.pop(_HREF)
    return Markup("".join(ElementTree.tostring(child, encoding="unicode") for child in root if child.tag != "metadata"))
