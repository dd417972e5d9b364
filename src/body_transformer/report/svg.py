"""Draw with matplotlib as SVG inside a page, in colours that follow the page's style sheet."""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self
from xml.etree import ElementTree

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from .curves import Curve
from .text import short

# Okabe and Ito's colours with Tol's indigo, which stay apart in the common colour blindnesses; (on white, on black).
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
VARIANT_STYLES = {
    "bot-hard": 0,
    "transformer": 1,
    "mlp": 2,
    "bot-mix": 3,
    "bot-soft": 4,
    "bot-hard-random": 5,
    "bot-mix-random": 6,
}
"""Styles of the variants, the same on every page."""
INK, SOFT, GRID, CARD, STOP = "#1d2126", "#5d6570", "#ebe8e3", "#ffffff", "#c0271d"
VARIABLES = {INK: "--ink", SOFT: "--soft", GRID: "--grid", CARD: "--card", STOP: "--stop"}
VARIABLES |= {light: f"--c{index}" for index, (light, _) in enumerate(COLOURS)}
"""Colours of a drawing -> variables of the style sheet, which have other values in dark mode."""
CLASSES = {"line", "band", "dot", "ring", "bar", "limit", "stop", "quantile", "phase"}
"""Group ids of a drawing's parts, which become classes in the page."""
_RC: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.size": 12,
    "font.sans-serif": ["DejaVu Sans"],
    "text.color": SOFT,
    "text.parse_math": False,  # labels are names, and a `$` in one does not begin a formula
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
_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML does not allow; a name may hold them."""
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}
_HREF = "{http://www.w3.org/1999/xlink}href"


def label_styles(labels: Iterable[str]) -> dict[str, int]:
    """Return a style number per label; no two share one while there are enough."""
    labels = list(dict.fromkeys(labels))
    chosen = {label: VARIANT_STYLES[label] for label in labels if label in VARIANT_STYLES}
    free = [style for style in range(NUM_STYLES) if style not in chosen.values()]
    others = [label for label in labels if label not in VARIANT_STYLES]
    return chosen | {label: free[index % len(free)] for index, label in enumerate(others)}


def stroke_style(style: int) -> dict[str, Any]:
    """Return colour and dashes as matplotlib's arguments."""
    dashes = DASHES[style // len(COLOURS) % len(DASHES)]
    return {"color": COLOURS[style % len(COLOURS)][0], "linestyle": (0, dashes) if dashes else "-"}


@dataclass(frozen=True)
class ChartFrame:
    """Size of a drawing and its margins in pixels."""

    width: int = 440
    height: int = 270
    left: int = 52
    right: int = 14
    top: int = 12
    bottom: int = 40


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
    frame: ChartFrame
    svg: Markup
    label: str
    """Description for readers who cannot see the drawing."""
    hover: Mapping[str, str] = field(default_factory=dict)
    """Data attributes from which a script shows the values under the pointer."""


class Canvas:
    """Axes for the charts of a page; a context in which matplotlib has the page's style.

    Axes are reused per size and scale, because making axes and ticks takes most of the time of a drawing.
    """

    def __init__(self) -> None:
        self._axes: dict[tuple[ChartFrame, bool, bool], Axes] = {}
        self._num_drawings = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(mpl.rc_context())
        mpl.rcdefaults()  # the page does not depend on the user's style
        mpl.rcParams.update(_RC)  # type: ignore[arg-type]  # keys of a dict are not literals
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def axes(
        self,
        frame: ChartFrame,
        x: tuple[float, float],
        y: tuple[float, float],
        x_log: bool = False,
        y_log: bool = False,
        x_label: str = "",
    ) -> Axes:
        """Return empty axes with these ranges."""
        key = (frame, x_log, y_log)
        if key not in self._axes:
            self._axes[key] = _new_axes(*key)
        axes = self._axes[key]
        axes.set(xlim=x, ylim=y, xlabel=x_label)
        for axis, is_log, (low, high), count in ((axes.xaxis, x_log, x, 6), (axes.yaxis, y_log, y, 5)):
            subs = (1, 2, 5) if is_log and high / low < 1e3 else (1,)
            axis.set_major_locator(LogLocator(subs=subs, numticks=9) if is_log else round_ticks(count))
        return axes

    def svg(self, axes: Axes) -> Markup:
        """Return the drawing as the content of an `svg` element, and empty the axes."""
        self._num_drawings += 1
        mpl.rcParams["svg.hashsalt"] = str(self._num_drawings)  # ids are unique in the page and the same in every run
        stream = io.StringIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # browsers have more fonts
            FigureCanvasSVG(axes.figure).print_svg(stream, metadata=_NO_METADATA)  # type: ignore[no-untyped-call,arg-type]
        for artist in [*axes.lines, *axes.collections, *axes.patches, *axes.texts]:
            artist.remove()
        return _inline(stream.getvalue())


def round_ticks(most: int) -> MaxNLocator:
    """Return a locator of at most this many steps between round numbers."""
    return MaxNLocator(most, steps=[1, 2, 2.5, 5, 10])


def hover_data(axes: Axes, x_name: str, lines: Sequence[Line]) -> dict[str, str]:
    """Return the lines and the position of the axes for the page's script."""
    left, bottom, right, top = axes.get_position().extents
    width, height = axes.figure.get_size_inches() * 72  # type: ignore[union-attr]
    area = {
        "x": [round(left * width, 1), round(right * width, 1), *axes.get_xlim()],
        "y": [round((1 - bottom) * height, 1), round((1 - top) * height, 1), *axes.get_ylim()],
        "log": axes.get_yscale() == "log",
    }
    content = [_line_data(line) for line in lines]
    return {"data-x": x_name, "data-area": _compact(area), "data-lines": _compact(content)} if lines else {}


def _line_data(line: Line) -> dict[str, object]:
    curve, data = line.curve, {"label": line.label, "style": line.style}
    parts = {"at": (curve.at, 7), "mean": (curve.mean, 4)}
    if curve.has_band:
        parts |= {"low": (curve.low, 4), "high": (curve.high, 4)}
    return data | {name: [float(f"{value:.{digits}g}") for value in part] for name, (part, digits) in parts.items()}


def _compact(content: object) -> str:
    return json.dumps(content, separators=(",", ":"))


def _new_axes(frame: ChartFrame, x_log: bool, y_log: bool) -> Axes:
    figure = Figure(figsize=(frame.width / 72, frame.height / 72))
    figure.patch.set_visible(False)
    inner = (frame.width - frame.left - frame.right, frame.height - frame.top - frame.bottom)
    place = (frame.left / frame.width, frame.bottom / frame.height, inner[0] / frame.width, inner[1] / frame.height)
    axes = figure.add_axes(place)
    axes.patch.set_visible(False)
    axes.grid(axis="y")
    axes.set(xscale="log" if x_log else "linear", yscale="log" if y_log else "linear")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    return axes


def _inline(text: str) -> Markup:
    """Return matplotlib's SVG without what only a separate file needs; named groups get their names as classes."""
    root = ElementTree.fromstring(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text))
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.tail = None
        element.text = element.text if element.tag == "text" else None
        for child in list(element):
            if child.tag.endswith(("}style", "}metadata")):
                element.remove(child)
        if element.tag == "g" and (name := element.attrib.pop("id", None)) in CLASSES:
            element.attrib["class"] = str(name)
        _tidy(element.attrib)
    return Markup("".join(ElementTree.tostring(child, encoding="unicode") for child in root))


def _tidy(attributes: dict[str, str]) -> None:
    """Shorten paths and replace colours by variables of the style sheet."""
    if "d" in attributes:
        attributes["d"] = " ".join(re.sub(r"(\.\d)\d+", r"\1", attributes["d"]).split())
    if "style" in attributes:
        attributes["style"] = re.sub(r"#[0-9a-f]{6}\b", _variable, attributes["style"])
    if _HREF in attributes:
        attributes["href"] = attributes.pop(_HREF)
    if attributes.get("transform", "").startswith("rotate(-0 "):
        del attributes["transform"]


def _variable(colour: re.Match[str]) -> str:
    name = VARIABLES.get(colour[0])
    return f"var({name})" if name else colour[0]
