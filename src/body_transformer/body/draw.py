"""Pictures of a body: its graph as a tree, and its attention mask."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from math import ceil
from pathlib import Path
from typing import Any

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

from ..pictures import save
from .graph import BodyGraph

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Okabe and Ito's colours and Tol's indigo, which remain distinct in the common forms of colour blindness.
LIMBS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#332288")
TRUNK, INK = "#666666", "#222222"
ARC: Mapping[str, Any] = {"color": "#D55E00", "linewidth": 1.2, "linestyle": (0, (3, 2))}

# Lengths are inches on paper, font sizes points.
FONT, PAGE = 8.0, (7.0, 9.0)
BOX_HEIGHT, BOX_PAD, SIBLING_GAP, LEVEL_GAP = 0.2, 0.14, 0.12, 0.2
ARC_REACHES, CLEARANCE = (0.2, 0.5, 1.0, 2.0), 0.03
"""Distances of an arc's control points from its two boxes, and of an arc from other boxes."""
MAX_CELL, NAME_PITCH, MAX_NAMED = 0.22, 0.12, 64
FILE: Mapping[str, Any] = {"dpi": 200, "bbox_inches": "tight", "pad_inches": 0.1}


def draw_body(graph: BodyGraph, path: Path) -> None:
    """Draw the body as a tree, with the root at the top, or at the left if that fits a page better.

    Each limb has its colour, a filled box has a joint, and a dashed arc is one of `extra_edges`.
    """
    save(lambda: body_figure(graph), path, **FILE)


def draw_mask(graph: BodyGraph, path: Path, mask: Bools | None = None, title: str | None = None) -> None:
    """Draw an attention mask [N, N], by default the body's: rows are queries, filled cells are visible keys."""
    save(lambda: mask_figure(graph, mask, title), path, **FILE)


# -- the tree ------------------------------------------------------------------------------------------------------


def body_figure(graph: BodyGraph) -> Figure:
    """Return the figure of `draw_body`; one data unit is one inch."""
    boxes, upright = place_boxes(graph)
    arcs = [_arc(boxes, graph.index(a), graph.index(b)) for a, b in graph.extra_edges]
    lines = _connections(graph, boxes, upright)
    corners = np.concatenate([boxes[:, :2], boxes[:, 2:], lines.reshape(-1, 2), *arcs])
    (left, low), (right, top) = corners.min(axis=0), corners.max(axis=0)

    figure = Figure(figsize=(right - left, top - low))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(left, right), ylim=(low, top))
    axes.set_axis_off()
    axes.add_collection(LineCollection(list(lines), colors=TRUNK, linewidths=0.8, zorder=1, clip_on=False))
    for arc in arcs:
        axes.plot(*arc.T, zorder=2, clip_on=False, **ARC)
    _draw_nodes(axes, graph, boxes)
    if legend := _legend(graph):
        place: Mapping[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0)}
        axes.legend(handles=legend, ncols=len(legend), fontsize=FONT, frameon=False, **place)
    return figure


def place_boxes(graph: BodyGraph) -> tuple[Floats, bool]:
    """Return the boxes [N, 4] as left, bottom, right, top, and whether the root is at the top (or at the left)."""
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
    """Return the position of each node: its centre across the tree [N], and its depth [N].

    Subtrees of siblings and of roots lie side by side with a `gap` between them, and a parent is midway over its
    children.
    """
    roots = [graph.index(root) for root in graph.roots]
    low, high = -extents / 2, extents / 2  # of each subtree, from the centre of its root
    offsets = np.zeros(graph.num_nodes)
    for node, family in [*reversed(graph.children.items()), (None, roots)]:
        if family:
            ends = np.cumsum(high[family] - low[family] + gap)
            places = ends - high[family]
            offsets[family] = places - (places[0] + places[-1]) / 2
        if family and node is not None:
            low[node] = min(low[node], (offsets + low)[family[0]])
            high[node] = max(high[node], (offsets + high)[family[-1]])
    centres, depth = offsets.copy(), np.zeros(graph.num_nodes, dtype=np.int64)
    for node, family in graph.children.items():
        centres[family] = centres[node] + offsets[family]
        depth[family] = depth[node] + 1
    return centres, depth


def _connections(graph: BodyGraph, boxes: Floats, upright: bool) -> Floats:
    """Return a line with two corners per edge, and one above the roots per further root: [edges, 4, 2]."""
    across = (boxes[:, :2] + boxes[:, 2:])[:, 0 if upright else 1] / 2
    near, far = boxes.T[[3, 1]] if upright else boxes.T[[0, 2]]  # sides of a box towards its parent and its children

    def line(a: str, b: str, start: Floats, gap: float) -> list[tuple[float, float]]:
        one, other = graph.index(a), graph.index(b)
        bend = near[other] + gap / 2
        return [(across[one], start[one]), (across[one], bend), (across[other], bend), (across[other], near[other])]

    gaps = [float(far[graph.index(parent)] - near[graph.index(child)]) for parent, child in graph.edges]
    lines = [line(*edge, far, np.clip(gap, -LEVEL_GAP, LEVEL_GAP)) for edge, gap in zip(graph.edges, gaps, strict=True)]
    lines += [line(graph.root, root, near, LEVEL_GAP if upright else -LEVEL_GAP) for root in graph.other_roots]
    found = np.array(lines).reshape(-1, 4, 2)
    return found if upright else found[..., ::-1]


def _arc(boxes: Floats, a: int, b: int) -> Floats:
    """Return the curve [P, 2] between the same sides of two boxes: the shortest with few points behind other boxes."""
    centre, half = (boxes[:, 2:] + boxes[:, :2]) / 2, (boxes[:, 2:] - boxes[:, :2]) / 2
    t = np.linspace(0, 1, 81)[:, None]
    arcs: list[Floats] = []
    for side in np.array([(0, -1), (-1, 0), (1, 0)]):
        start, end = (centre + half * side)[[a, b]]
        for reach in ARC_REACHES:
            controls = (1 - t) * (start + reach * side) + t * (end + reach * side)
            arcs.append((1 - t) ** 3 * start + 3 * t * (1 - t) * controls + t**3 * end)

    def cost(arc: Floats) -> float:
        is_near = np.abs(arc[1:, None] - centre) < half + CLEARANCE  # [P - 1, N, 2]
        is_hidden = np.any(is_near[..., 0] & is_near[..., 1], axis=1)
        steps = np.linalg.norm(np.diff(arc, axis=0), axis=1)
        return round(float((steps * np.where(is_hidden, 12, 1)).sum()), 3)

    return min(arcs, key=cost)


def _text_width(text: str) -> float:
    font = FontProperties(family="DejaVu Sans", size=FONT)
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]) / 72


def _draw_nodes(axes: Axes, graph: BodyGraph, boxes: Floats) -> None:
    jointed = set(graph.joints.values())
    for name, colour, (left, low, right, top) in zip(graph.nodes, _limb_colours(graph), boxes, strict=True):
        style = {**_box_style(colour, name in jointed), "zorder": 3, "clip_on": False}
        axes.add_patch(FancyBboxPatch((left, low), right - left, top - low, "round,pad=0,rounding_size=0.05", **style))
        # all names share a baseline; centring each one would shift names with descenders
        baseline = (low + top) / 2 - 0.26 * FONT / 72
        axes.text((left + right) / 2, baseline, name, size=FONT, ha="center", parse_math=False, zorder=4)


def _box_style(colour: str, filled: bool) -> dict[str, Any]:
    tint = tuple(1 - 0.4 * (1 - part) for part in to_rgb(colour))
    return {"facecolor": tint if filled else "white", "edgecolor": colour, "linewidth": 1.0}


def _limb_colours(graph: BodyGraph) -> list[str]:
    """Return the colour of each node's limb, or grey for the trunk: [N].

    The trunk ends at the first fork, unless there are several roots, and at each later fork at which at least two
    children have children. So the legs below a spine are limbs, but fingers of one body each belong to the arm.
    """
    children, roots = graph.children, [graph.index(root) for root in graph.roots]
    forks = [node for node, family in children.items() if len(family) > 1]
    trunk = {node for node in forks if sum(bool(children[child]) for child in children[node]) > 1}
    trunk.update([] if graph.other_roots else forks[:1])
    for node, family in reversed(children.items()):
        if trunk.intersection(family):
            trunk.add(node)

    palette = cycle(LIMBS)
    colours = {root: next(palette) if graph.other_roots and root not in trunk else TRUNK for root in roots}
    for node, family in children.items():
        for child in family:
            colours[child] = TRUNK if child in trunk else next(palette) if node in trunk else colours[node]
    return [colours[node] for node in range(graph.num_nodes)]


def _legend(graph: BodyGraph) -> list[Patch | Line2D]:
    entries: list[Patch | Line2D] = []
    jointed = set(graph.joints.values())
    if jointed:  # a graph made from names alone has no joints
        entries.append(Patch(label="with joint", **_box_style(TRUNK, True)))
    if jointed and len(jointed) < graph.num_nodes:
        entries.append(Patch(label="without joint", **_box_style(TRUNK, False)))
    if graph.extra_edges:
        entries.append(Line2D([], [], label="extra edge", **ARC))
    return entries


# -- the mask ------------------------------------------------------------------------------------------------------


def mask_figure(graph: BodyGraph, mask: Bools | None = None, title: str | None = None) -> Figure:
    """Return the figure of `draw_mask`."""
    count = graph.num_nodes
    mask = np.asarray(graph.mask if mask is None else mask, dtype=bool)
    if mask.shape != (count, count):
        raise ValueError(f"mask has shape {list(mask.shape)}; this body needs [{count}, {count}]")
    side = min(MAX_CELL * count, max(5.0, NAME_PITCH * min(count, MAX_NAMED)))
    side = max(side, 1.3)  # the length of the axis labels
    step = ceil(NAME_PITCH * count / side - 1e-9)  # on a larger body, only every second or third node is named
    size = min(FONT, 0.7 * 72 * side / count * step)
    figure = Figure(figsize=(side, side))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, count), ylim=(count, 0))
    _fill_cells(axes, mask)
    ticks = np.arange(0, count, step) + 0.5
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xticks(ticks, graph.nodes[::step], size=size, rotation=90, parse_math=False)
    axes.set_yticks(ticks, graph.nodes[::step], size=size, parse_math=False)
    axes.set_xlabel("to (key)", size=FONT)
    axes.set_ylabel("attends from (query)", size=FONT)
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set(linewidth=0.8, color=INK)
    axes.set_title(title or "", size=FONT + 1, parse_math=False)
    nodes = "1 node" if count == 1 else f"{count} nodes"
    caption = f"{nodes}, {mask.sum()} ones of {mask.size}, sparsity {1 - mask.mean():.3f}"
    axes.text(0.5, -0.1 / side, caption, size=FONT, ha="center", va="top", transform=axes.transAxes)
    return figure


def _fill_cells(axes: Axes, mask: Bools) -> None:
    """Fill a black cell per True, with grey lines between the cells of a small mask."""
    count = len(mask)
    rows, columns = np.nonzero(mask)
    cells = np.stack([columns, rows], axis=1)[:, None] + [(0, 0), (1, 0), (1, 1), (0, 1)]  # [K, 4, 2]
    axes.add_collection(PolyCollection(list(cells), facecolors=INK, linewidths=0, antialiaseds=False))
    if count <= MAX_NAMED:
        axes.hlines(range(1, count), 0, count, colors="0.8", linewidth=0.35)
        axes.vlines(range(1, count), 0, count, colors="0.8", linewidth=0.35)
