"""Geometry of the picture of a body, in inches: positions of nodes, lines and curves."""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt

from .graph import BodyGraph

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEVEL_GAP = 0.2
"""Distance between a parent's box and its children's."""

CURVE_MARGIN = 0.03
"""Clearance of a curve from boxes and lines; nearer, it counts as inside or doubled."""
MIN_CHORD = 0.3
"""Minimum distance between the ends of a curve; an arc of two dashes between adjacent boxes is not visible."""
BENDING, HIDDEN, DOUBLED, TOO_SHORT = 0.05, 20.0, 3.0, 20.0
"""Costs that are added to the length of a curve, in inches.

`BENDING` is for the integral of the squared curvature, so that bends are wide. The others are for each inch inside a
box, on a line, and below `MIN_CHORD`: a detour of up to `HIDDEN` inches is preferred to one inch inside a box.
"""

_T = np.linspace(0, 1, 81)[:, None]
_BERNSTEIN = np.concatenate([(1 - _T) ** 3, 3 * _T * (1 - _T) ** 2, 3 * _T**2 * (1 - _T), _T**3], axis=1)  # [P, 4]


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


def brackets(graph: BodyGraph, boxes: Floats, upright: bool) -> Floats:
    """Return the line segments [S, 2, 2] between parents and children: a stem, a bar and a drop per child.

    Several roots are joined by a bar without a stem.
    """
    view = boxes if upright else boxes[:, [1, 0, 3, 2]]
    across = (view[:, 0] + view[:, 2]) / 2
    leave, arrive = (view[:, 1], view[:, 3]) if upright else (view[:, 3], view[:, 1])
    pieces = []
    for node, family in graph.children.items():
        if family:
            arrival = arrive[family[0]]
            bend = arrival + np.clip(leave[node] - arrival, -LEVEL_GAP, LEVEL_GAP) / 2
            pieces.append([(across[node], leave[node]), (across[node], bend)])
            pieces += _bar(across[family], arrival, bend)
    if graph.other_roots:
        roots = [graph.index(root) for root in graph.roots]
        arrival = arrive[roots[0]]
        pieces += _bar(across[roots], arrival, arrival + np.sign(arrival - leave[roots[0]]) * LEVEL_GAP / 2)
    lines = np.array(pieces).reshape(-1, 2, 2)
    return lines if upright else lines[..., ::-1]


def _bar(ends: Floats, arrival: float, bend: float) -> list[list[tuple[float, float]]]:
    """Return a bar at `bend` over all `ends`, and a drop from it to each end at `arrival`."""
    return [[(ends.min(), bend), (ends.max(), bend)], *([(end, bend), (end, arrival)] for end in ends)]


def curves(graph: BodyGraph, boxes: Floats, lines: Floats) -> list[Floats]:
    """Return a curve [P, 2] per extra edge that avoids boxes, lines and other curves as far as possible."""
    arcs: list[Floats] = []
    for a, b in graph.extra_edges:
        arc = _arc(boxes, lines, graph.index(a), graph.index(b))
        lines = np.concatenate([lines, np.stack([arc[:-1], arc[1:]], axis=1)])
        arcs.append(arc)
    return arcs


def _arc(boxes: Floats, lines: Floats, a: int, b: int) -> Floats:
    """Return the cubic curve [P, 2] of lowest cost among those that leave both boxes at a right angle."""
    centre, half = (boxes[:, 2:] + boxes[:, :2]) / 2, (boxes[:, 2:] - boxes[:, :2]) / 2
    sides, reaches = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)]), (0.2, 0.5, 1.0, 2.0)
    controls = []
    for out_a, out_b, reach_a, reach_b in product(sides, sides, reaches, reaches):
        start, end = centre[a] + half[a] * out_a, centre[b] + half[b] * out_b
        controls.append([start, start + reach_a * out_a, end + reach_b * out_b, end])
    curves = _BERNSTEIN @ np.array(controls)  # [C, P, 2]

    clearance = np.full((len(boxes), 1), CURVE_MARGIN)
    clearance[[a, b]] = 0.0
    hidden = _length_inside(curves, boxes[:, :2] - clearance, boxes[:, 2:] + clearance)
    doubled = _length_inside(curves, lines.min(axis=1) - CURVE_MARGIN, lines.max(axis=1) + CURVE_MARGIN)
    pieces = np.diff(curves, axis=1)
    steps = np.hypot(pieces[..., 0], pieces[..., 1])
    turns = np.diff(np.unwrap(np.arctan2(pieces[..., 1], pieces[..., 0])))
    bending = (turns**2 / (steps[:, 1:] + 1e-9)).sum(axis=1)
    chord = np.hypot(*(curves[:, -1] - curves[:, 0]).T)
    too_short = np.maximum(0.0, MIN_CHORD - chord)
    cost = steps.sum(axis=1) + BENDING * bending + HIDDEN * hidden + DOUBLED * doubled + TOO_SHORT * too_short
    return np.asarray(curves[cost.argmin()])


def _length_inside(curves: Floats, low: Floats, high: Floats) -> Floats:
    """Return the length of each curve [C, P, 2] inside the boxes from low [K, 2] to high [K, 2]: [C]."""
    middle = (curves[:, 1:, None] + curves[:, :-1, None]) / 2  # [C, P - 1, 1, 2]
    inside = (middle > low) & (middle < high)  # [C, P - 1, K, 2]
    hit = np.any(inside[..., 0] & inside[..., 1], axis=2)
    return np.asarray((np.linalg.norm(np.diff(curves, axis=1), axis=2) * hit).sum(axis=1))
