"""Geometry of the picture of a body, in inches: positions of nodes, lines and curves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

from .graph import BodyGraph

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEVEL_GAP = 0.2
"""Distance between a parent's box and its children's."""

_T = np.linspace(0, 1, 81)[:, None]
_BERNSTEIN = np.concatenate([(1 - _T) ** 3, 3 * _T * (1 - _T) ** 2, 3 * _T**2 * (1 - _T), _T**3], axis=1)  # [P, 4]


def tidy_layout(graph: BodyGraph, extents: Floats, gap: float) -> tuple[Floats, Ints]:
    """Return the position of each node: its centre across the tree [N], and its depth [N].

    Nodes of equal depth keep `gap` between their `extents`, subtrees do not interleave, and a parent is midway over its
    children. This is Reingold and Tilford's layout, with the slack between siblings distributed evenly.
    """
    outlines: dict[int, Floats] = {}
    offsets = np.zeros(graph.num_nodes)
    for node, family in reversed(graph.children.items()):
        if family:
            places = _spread([outlines[child] for child in family], gap)
            offsets[family] = places - (places[0] + places[-1]) / 2
        outlines[node] = _outline(extents[node], [outlines.pop(child) + offsets[child] for child in family])
    centres, depth = np.zeros(graph.num_nodes), np.zeros(graph.num_nodes, dtype=np.int64)
    for node, family in graph.children.items():
        centres[family] = centres[node] + offsets[family]
        depth[family] = depth[node] + 1
    return centres, depth


def _outline(extent: float, below: Sequence[Floats]) -> Floats:
    """Return the extent of a subtree to the left and right of its root at each level: [levels, 2]."""
    outline = np.tile([np.inf, -np.inf], (1 + max(map(len, below), default=0), 1))
    outline[0] = -extent / 2, extent / 2
    for other in below:
        level = outline[1 : 1 + len(other)]
        level[:, 0] = np.minimum(level[:, 0], other[:, 0])
        level[:, 1] = np.maximum(level[:, 1], other[:, 1])
    return outline


def _spread(outlines: Sequence[Floats], gap: float) -> Floats:
    """Return positions of sibling subtrees, as close as their outlines allow: [K]."""
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
    return np.asarray((leftmost + rightmost) / 2)  # both keep every distance, so their mean does too


def brackets(graph: BodyGraph, boxes: Floats, upright: bool) -> Floats:
    """Return the line segments [S, 2, 2] between parents and children: a stem, a bar and a drop per child."""
    view = boxes if upright else boxes[:, [1, 0, 3, 2]]
    across = (view[:, 0] + view[:, 2]) / 2
    leave, arrive = (view[:, 1], view[:, 3]) if upright else (view[:, 3], view[:, 1])
    pieces = []
    for node, family in graph.children.items():
        if family:
            ends, arrival = across[family], arrive[family[0]]
            bend = arrival + np.clip(leave[node] - arrival, -LEVEL_GAP, LEVEL_GAP) / 2
            pieces.append([(across[node], leave[node]), (across[node], bend)])
            pieces.append([(ends.min(), bend), (ends.max(), bend)])
            pieces += [[(end, bend), (end, arrival)] for end in ends]
    lines = np.array(pieces).reshape(-1, 2, 2)
    return lines if upright else lines[..., ::-1]


def curves(graph: BodyGraph, boxes: Floats, lines: Floats) -> list[Floats]:
    """Return a curve [P, 2] per extra edge that avoids boxes, lines and other curves as far as possible."""
    arcs: list[Floats] = []
    for a, b in graph.extra_edges:
        arc = _arc(boxes, lines, graph.index(a), graph.index(b))
        lines = np.concatenate([lines, np.stack([arc[:-1], arc[1:]], axis=1)])
        arcs.append(arc)
    return arcs


def _arc(boxes: Floats, lines: Floats, a: int, b: int) -> Floats:
    """Return the cheapest of the cubic curves that leave both boxes at a right angle: [P, 2]."""
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
    too_short = np.maximum(0.0, 0.3 - chord)  # two dashes between neighbours are not visible
    cost = steps.sum(axis=1) + 0.05 * bending + 20 * hidden + 3 * doubled + 20 * too_short
    return np.asarray(curves[cost.argmin()])


def _length_inside(curves: Floats, low: Floats, high: Floats) -> Floats:
    """Return the length of each curve [C, P, 2] inside the boxes from low [K, 2] to high [K, 2]: [C]."""
    middle = (curves[:, 1:, None] + curves[:, :-1, None]) / 2  # [C, P - 1, 1, 2]
    inside = (middle > low) & (middle < high)  # [C, P - 1, K, 2]
    hit = np.any(inside[..., 0] & inside[..., 1], axis=2)
    return np.asarray((np.linalg.norm(np.diff(curves, axis=1), axis=2) * hit).sum(axis=1))
