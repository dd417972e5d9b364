"""Pictures of a body: its graph as a tree, and its attention mask."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from math import ceil
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch
from matplotlib.textpath import text_to_path

from .graph import BodyGraph
from .messages import listing

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Suffix -> metadata; without its date, the same picture is the same file.
FORMATS: Mapping[str, dict[str, Any]] = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
# Okabe and Ito's colours and Tol's indigo stay apart in the common colour blindnesses, and on white.
LIMBS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#332288")
TRUNK, INK = "#666666", "#222222"
ARC: Mapping[str, Any] = {"color": "#D55E00", "linewidth": 1.2, "linestyle": (0, (3, 2))}

# Lengths are inches on paper, font sizes points.
DPI, FONT, PAGE, MARGIN = 200, 8.0, (7.0, 9.0), 0.1
BOX_HEIGHT, BOX_PAD, SIBLING_GAP, LEVEL_GAP = 0.2, 0.14, 0.12, 0.2
MAX_CELL, NAME_PITCH, MAX_NAMED = 0.22, 0.12, 64

_T = np.linspace(0, 1, 81)[:, None]
_BERNSTEIN = np.concatenate([(1 - _T) ** 3, 3 * _T * (1 - _T) ** 2, 3 * _T**2 * (1 - _T), _T**3], axis=1)  # [P, 4]


def draw_body(graph: BodyGraph, path: Path) -> None:
    """Write the body as a tree: root at the top, or at the left where that fits a page better.

    Colour tells the limbs apart, a filled box carries a joint, a dashed arc is one of `extra_edges`.
    """
    _save(lambda: body_figure(graph), path)


def draw_mask(graph: BodyGraph, path: Path, mask: Bools | None = None, title: str | None = None) -> None:
    """Write an attention mask [N, N], the body's own by default: rows are queries, filled cells the keys they see."""
    _save(lambda: mask_figure(graph, mask, title), path)


def _save(draw: Callable[[], Figure], path: Path) -> None:
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(f"unknown picture format {path.suffix!r} in {str(path)!r}; have: {listing(FORMATS)}")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with mpl.rc_context():
            mpl.rcdefaults()  # under a user's dark style, names would be white on white
            mpl.rc("pdf", fonttype=42)  # publishers refuse the default, Type 3
            mpl.rc("svg", hashsalt="body")  # or its ids differ from run to run
            draw().savefig(unfinished, format=suffix[1:], dpi=DPI, metadata=FORMATS[suffix])
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _text_width(text: str, size: float = FONT) -> float:
    font = FontProperties(family="DejaVu Sans", size=size)
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]) / 72


# -- the tree ------------------------------------------------------------------------------------------------------


def body_figure(graph: BodyGraph) -> Figure:
    """The picture of `draw_body`; one data unit is one inch."""
    boxes, upright = place_boxes(graph)
    lines = _brackets(graph, boxes, upright)
    arcs = _arcs(graph, boxes, lines)
    corners = np.concatenate([boxes[:, :2], boxes[:, 2:], *arcs])
    (left, low), (right, top) = corners.min(axis=0) - MARGIN, corners.max(axis=0) + MARGIN
    legend = _legend(graph)
    if legend:
        low -= 0.25
        spare = sum(0.55 + _text_width(str(entry.get_label())) for entry in legend) - (right - left)
        left, right = left - max(spare, 0) / 2, right + max(spare, 0) / 2

    figure = Figure(figsize=(right - left, top - low))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(left, right), ylim=(low, top))
    axes.set_axis_off()
    axes.add_collection(LineCollection(list(lines), colors=TRUNK, linewidths=0.8, capstyle="projecting", zorder=1))
    _draw_nodes(axes, graph, boxes)
    for arc in arcs:
        axes.plot(*arc.T, zorder=3, **ARC)
    if legend:
        figure.legend(handles=legend, loc="lower center", ncols=len(legend), fontsize=FONT, frameon=False)
    return figure


def place_boxes(graph: BodyGraph) -> tuple[Floats, bool]:
    """([N, 4] the nodes' boxes as left, bottom, right, top; whether the root is at the top, else at the left)."""
    widths = np.array([_text_width(name) + BOX_PAD for name in graph.nodes])
    half = BOX_HEIGHT / 2
    across, depth = tidy_layout(graph, widths, SIBLING_GAP)
    pitch = np.clip(PAGE[1] / (1 + depth.max()), BOX_HEIGHT + LEVEL_GAP / 2, BOX_HEIGHT + LEVEL_GAP)
    upright = np.stack([across - widths / 2, -depth * pitch - half, across + widths / 2, -depth * pitch + half], axis=1)

    across, depth = tidy_layout(graph, np.full_like(widths, BOX_HEIGHT), SIBLING_GAP / 2)
    columns = [widths[depth == level].max() + 1.5 * LEVEL_GAP for level in range(depth.max())]
    left = np.cumsum([0.0, *columns])[depth]
    lying = np.stack([left, -across - half, left + widths, -across + half], axis=1)

    pages = [((boxes[:, 2:].max(axis=0) - boxes[:, :2].min(axis=0)) / PAGE).max() for boxes in (upright, lying)]
    return (upright, True) if pages[0] <= pages[1] else (lying, False)


def tidy_layout(graph: BodyGraph, extents: Floats, gap: float) -> tuple[Floats, Ints]:
    """Where each node stands: ([N] its centre across the tree, [N] its depth).

    Nodes of one depth keep `gap` between their `extents`, subtrees never interleave and parents stand midway over
    their children: Reingold and Tilford's layout, with the slack between siblings shared out.
    """
    children, depth = _descend(graph)
    outlines: dict[int, Floats] = {}
    offsets = np.zeros(graph.num_nodes)
    for node, family in reversed(children.items()):
        if family:
            places = _spread([outlines[child] for child in family], gap)
            offsets[family] = places - (places[0] + places[-1]) / 2
        outlines[node] = _outline(extents[node], [outlines.pop(child) + offsets[child] for child in family])
    centres = np.zeros(graph.num_nodes)
    for node, family in children.items():
        centres[family] = centres[node] + offsets[family]
    return centres, depth


def _descend(graph: BodyGraph) -> tuple[dict[int, list[int]], Ints]:
    """(node -> its children, parents before children; [N] depth), by index."""
    families: list[list[int]] = [[] for _ in graph.nodes]
    for parent, child in graph.edges:
        families[graph.index(parent)].append(graph.index(child))
    depth = np.zeros(graph.num_nodes, dtype=np.int64)
    order = [graph.index(graph.root)]
    for node in order:  # grows while it is walked
        depth[families[node]] = depth[node] + 1
        order += families[node]
    return {node: families[node] for node in order}, depth


def _outline(extent: float, below: Sequence[Floats]) -> Floats:
    """[levels, 2] how far a subtree reaches to the left and right of its root, level by level."""
    outline = np.tile([np.inf, -np.inf], (1 + max(map(len, below), default=0), 1))
    outline[0] = -extent / 2, extent / 2
    for other in below:
        level = outline[1 : 1 + len(other)]
        level[:, 0] = np.minimum(level[:, 0], other[:, 0])
        level[:, 1] = np.maximum(level[:, 1], other[:, 1])
    return outline


def _spread(outlines: Sequence[Floats], gap: float) -> Floats:
    """[K] places of sibling subtrees, as close as their outlines allow."""
    count = len(outlines)
    apart = np.zeros((count, count))
    for i, j in combinations(range(count), 2):
        shared = min(len(outlines[i]), len(outlines[j]))
        apart[i, j] = (outlines[i][:shared, 1] - outlines[j][:shared, 0]).max() + gap
    leftmost = np.zeros(count)
    for j in range(1, count):
        leftmost[j] = (leftmost[:j] + apart[:j, j]).max()
    rightmost = np.full(count, leftmost[-1])
    for i in reversed(range(count - 1)):
        rightmost[i] = (rightmost[i + 1 :] - apart[i, i + 1 :]).min()
    return np.asarray((leftmost + rightmost) / 2)  # both keep every distance, and so does their mean


def _draw_nodes(axes: Axes, graph: BodyGraph, boxes: Floats) -> None:
    jointed = set(graph.joints.values())
    for name, colour, (left, low, right, top) in zip(graph.nodes, _limb_colours(graph), boxes, strict=True):
        look = _look(colour, name in jointed)
        shape = FancyBboxPatch((left, low), right - left, top - low, "round,pad=0,rounding_size=0.05", zorder=2, **look)
        axes.add_patch(shape)
        baseline = (low + top) / 2 - 0.26 * FONT / 72  # not centred one by one, where a 'y' would lift its word
        axes.text((left + right) / 2, baseline, name, size=FONT, ha="center", parse_math=False, zorder=4)


def _look(colour: str, filled: bool) -> dict[str, Any]:
    tint = tuple(1 - 0.4 * (1 - part) for part in to_rgb(colour))
    return {"facecolor": tint if filled else "white", "edgecolor": colour, "linewidth": 1.0}


def _limb_colours(graph: BodyGraph) -> list[str]:
    """[N] a colour for every limb, grey for what leads to them.

    Limbs begin where the body first forks, and where it forks into longer parts again: at the hips below a spine, but
    not at the fingers of a hand that are one body each.
    """
    children, _ = _descend(graph)
    forks = [node for node, family in children.items() if len(family) > 1]
    forks = [n for n in forks if n == forks[0] or sum(bool(children[child]) for child in children[n]) > 1]
    above = set(forks)
    for node, family in reversed(children.items()):
        if above.intersection(family):
            above.add(node)
    colours, limbs = [TRUNK] * graph.num_nodes, 0
    for node, family in children.items():
        for child in family:
            if child in above:
                continue
            colours[child] = LIMBS[limbs % len(LIMBS)] if node in above else colours[node]
            limbs += node in above
    return colours


def _legend(graph: BodyGraph) -> list[Patch | Line2D]:
    entries: list[Patch | Line2D] = []
    jointed = set(graph.joints.values())
    if jointed:  # a graph made from names alone says nothing about joints
        entries.append(Patch(label="with joint", **_look(TRUNK, True)))
    if jointed and len(jointed) < graph.num_nodes:
        entries.append(Patch(label="without joint", **_look(TRUNK, False)))
    if graph.extra_edges:
        entries.append(Line2D([], [], label="extra edge", **ARC))
    return entries


def _brackets(graph: BodyGraph, boxes: Floats, upright: bool) -> Floats:
    """[S, 2, 2] the straight pieces between parents and children: a stem, a bar and a drop to each child."""
    view = boxes if upright else boxes[:, [1, 0, 3, 2]]
    across = (view[:, 0] + view[:, 2]) / 2
    leave, arrive = (view[:, 1], view[:, 3]) if upright else (view[:, 3], view[:, 1])
    pieces = []
    for node, family in _descend(graph)[0].items():
        if family:
            ends, arrival = across[family], arrive[family[0]]
            bend = arrival + np.clip(leave[node] - arrival, -LEVEL_GAP, LEVEL_GAP) / 2
            pieces.append([(across[node], leave[node]), (across[node], bend)])
            pieces.append([(ends.min(), bend), (ends.max(), bend)])
            pieces += [[(end, bend), (end, arrival)] for end in ends]
    lines = np.array(pieces).reshape(-1, 2, 2)
    return lines if upright else lines[..., ::-1]


def _arcs(graph: BodyGraph, boxes: Floats, lines: Floats) -> list[Floats]:
    """[P, 2] points of a curve for every extra edge, clear of boxes, lines and each other as far as can be."""
    arcs: list[Floats] = []
    for a, b in graph.extra_edges:
        arc = _arc(boxes, lines, graph.index(a), graph.index(b))
        lines = np.concatenate([lines, np.stack([arc[:-1], arc[1:]], axis=1)])
        arcs.append(arc)
    return arcs


def _arc(boxes: Floats, lines: Floats, a: int, b: int) -> Floats:
    """[P, 2] the cheapest of the cubic curves that leave both boxes squarely."""
    centre, half = (boxes[:, 2:] + boxes[:, :2]) / 2, (boxes[:, 2:] - boxes[:, :2]) / 2
    sides, reaches = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)]), (0.2, 0.5, 1.0, 2.0)
    controls = []
    for out_a, out_b, reach_a, reach_b in product(sides, sides, reaches, reaches):
        start, end = centre[a] + half[a] * out_a, centre[b] + half[b] * out_b
        controls.append([start, start + reach_a * out_a, end + reach_b * out_b, end])
    curves = _BERNSTEIN @ np.array(controls)  # [C, P, 2]

    clearance = np.full((len(boxes), 1), 0.03)
    clearance[[a, b]] = 0.0
    hidden = _length_inside(curves, boxes[:, :2] - clearance, boxes[:, 2:] + clearance)
    doubled = _length_inside(curves, lines.min(axis=1) - 0.03, lines.max(axis=1) + 0.03)
    pieces = np.diff(curves, axis=1)
    steps = np.hypot(pieces[..., 0], pieces[..., 1])
    turns = np.diff(np.unwrap(np.arctan2(pieces[..., 1], pieces[..., 0])))
    bending = (turns**2 / (steps[:, 1:] + 1e-9)).sum(axis=1)
    chord = np.hypot(*(curves[:, -1] - curves[:, 0]).T)
    too_short = np.maximum(0.0, 0.3 - chord)  # nobody sees two dashes between neighbours
    cost = steps.sum(axis=1) + 0.05 * bending + 20 * hidden + 3 * doubled + 20 * too_short
    return np.asarray(curves[cost.argmin()])


def _length_inside(curves: Floats, low: Floats, high: Floats) -> Floats:
    """[C] how much of each curve [C, P, 2] runs through the boxes from low [K, 2] to high [K, 2]."""
    middle = (curves[:, 1:, None] + curves[:, :-1, None]) / 2  # [C, P - 1, 1, 2]
    inside = (middle > low) & (middle < high)  # [C, P - 1, K, 2]
    hit = np.any(inside[..., 0] & inside[..., 1], axis=2)
    return np.asarray((np.linalg.norm(np.diff(curves, axis=1), axis=2) * hit).sum(axis=1))


# -- the mask ------------------------------------------------------------------------------------------------------


def mask_figure(graph: BodyGraph, mask: Bools | None = None, title: str | None = None) -> Figure:
    """The picture of `draw_mask`."""
    count = graph.num_nodes
    mask = np.asarray(graph.mask if mask is None else mask, dtype=bool)
    if mask.shape != (count, count):
        raise ValueError(f"mask has shape {list(mask.shape)}; this body needs [{count}, {count}]")
    nodes = "1 node" if count == 1 else f"{count} nodes"
    caption = f"{nodes}, {mask.sum()} of {mask.size} ones, sparsity {1 - mask.mean():.3f}"
    side = min(MAX_CELL * count, max(5.0, NAME_PITCH * min(count, MAX_NAMED)))
    side = max(side, 1.3)  # as long as the axis labels
    step = ceil(NAME_PITCH * count / side - 1e-9)  # in a larger body every second or third is named
    size = min(FONT, 0.7 * 72 * side / count * step)
    names = 0.22 + max(_text_width(name, size) for name in graph.nodes[::step])
    overhang = (max(_text_width(caption), _text_width(title or "", FONT + 1)) - side) / 2
    left, right = max(names, overhang) + MARGIN, max(0.0, overhang) + MARGIN
    bottom, top = 0.3, names + MARGIN + (0.2 if title else 0.0)

    width, height = left + side + right, bottom + side + top
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((left / width, bottom / height, side / width, side / height))
    _fill_cells(axes, mask)
    ticks = np.arange(0, count, step) + 0.5
    axes.set_xticks(ticks, graph.nodes[::step], size=size, rotation=90, parse_math=False)
    axes.set_yticks(ticks, graph.nodes[::step], size=size, parse_math=False)
    middle = (left + side / 2) / width
    figure.text(middle, MARGIN / height, caption, size=FONT, ha="center")
    figure.text(middle, 1 - MARGIN / height, title or "", size=FONT + 1, ha="center", va="top", parse_math=False)
    return figure


def _fill_cells(axes: Axes, mask: Bools) -> None:
    """Black cells on white, the first row at the top, the keys' names above it."""
    count = len(mask)
    rows, columns = np.nonzero(mask)
    cells = np.stack([columns, rows], axis=1)[:, None] + [(0, 0), (1, 0), (1, 1), (0, 1)]  # [K, 4, 2]
    axes.add_collection(PolyCollection(list(cells), facecolors=INK, linewidths=0, antialiaseds=False))
    if count <= MAX_NAMED:
        axes.hlines(range(1, count), 0, count, colors="0.8", linewidth=0.35)
        axes.vlines(range(1, count), 0, count, colors="0.8", linewidth=0.35)
    axes.set(xlim=(0, count), ylim=(count, 0))
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("to (key)", size=FONT)
    axes.set_ylabel("attends from (query)", size=FONT)
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set(linewidth=0.8, color=INK)
