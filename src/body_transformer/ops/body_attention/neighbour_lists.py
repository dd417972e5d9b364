"""The ones of a mask as neighbour lists, for kernels and for plain PyTorch."""

from dataclasses import dataclass

import torch
from torch import Tensor

MAX_LIGHT = 16
"""Largest number of neighbours of a light node. A program handles many light nodes at once, or one heavy node."""
HEAVY_COST = 32
"""Cost of a heavy node's program, in units of one neighbour of a light node."""
MAX_ORDERED = 64
"""Average number of neighbours above which nodes are not reordered, since no order keeps neighbours close."""


@dataclass(frozen=True)
class Side:
    """The entries of a mask by row (the nodes that a node attends to) or by column (the nodes that attend to it)."""

    start: Tensor
    """[N + 1] int32: node n has the entries start[n] to start[n + 1]."""
    other: Tensor
    """[num_ones] int32: the node at the other end."""
    position: Tensor
    """[num_ones] int32: index of each entry when all are sorted by row."""
    light: Tensor
    """[…] int32: nodes with at most `slots` entries, in an order that keeps neighbours close."""
    heavy: Tensor
    """[…] int32: the nodes with more."""
    slots: int


@dataclass(frozen=True)
class NeighbourLists:
    """The ones of a mask, sorted by row and by column."""

    num_nodes: int
    num_ones: int
    flat: Tensor
    """[num_ones] int64: index of each entry in the flattened mask, sorted by row."""
    rows: Side
    columns: Side


def build_lists(mask: Tensor) -> NeighbourLists:
    """Build the lists of a bool mask [N, N]."""
    num_nodes = len(mask)
    row, column = mask.nonzero().unbind(1)
    by_column = torch.argsort(column, stable=True)
    nodes = _depth_first_order(num_nodes, row, column).to(mask.device)
    everywhere = torch.arange(len(row), device=mask.device)
    return NeighbourLists(
        num_nodes=num_nodes,
        num_ones=len(row),
        flat=row * num_nodes + column,
        rows=_side(row, column, everywhere, nodes),
        columns=_side(column[by_column], row[by_column], by_column, nodes),
    )


def _side(sorted_nodes: Tensor, other: Tensor, position: Tensor, order: Tensor) -> Side:
    count = torch.bincount(sorted_nodes, minlength=len(order))
    slots = _light_slots(count)
    light = count[order] <= slots
    start = torch.nn.functional.pad(count.cumsum(0), (1, 0))
    return Side(start.int(), other.int(), position.int(), order[light].int(), order[~light].int(), slots)


def _light_slots(count: Tensor) -> int:
    """Return the cheapest number of slots for light nodes; every light node takes the time of all slots."""
    histogram = torch.bincount(count.clamp(max=MAX_LIGHT + 1), minlength=MAX_LIGHT + 2).tolist()
    num_nodes, num_entries = len(count), int(count.sum())
    best, least, nodes, entries = 1, float("inf"), 0, 0
    for slots in range(1, MAX_LIGHT + 1):
        nodes += histogram[slots]
        entries += histogram[slots] * slots
        cost = slots * nodes + (num_entries - entries) + HEAVY_COST * (num_nodes - nodes)
        if cost < least:
            best, least = slots, cost
    return best


def _depth_first_order(num_nodes: int, row: Tensor, column: Tensor) -> Tensor:
    """Return all nodes in depth-first order of the undirected graph; on a GPU breadth-first order was never faster."""
    if len(row) > MAX_ORDERED * num_nodes:
        return torch.arange(num_nodes)
    neighbours: list[list[int]] = [[] for _ in range(num_nodes)]
    for a, b in zip(row.tolist(), column.tolist(), strict=True):
        neighbours[a].append(b)
        neighbours[b].append(a)
    seen, order = [False] * num_nodes, []
    for first in range(num_nodes):
        waiting = [] if seen[first] else [first]
        while waiting:
            node = waiting.pop()
            if seen[node]:
                continue
            seen[node] = True
            order.append(node)
            waiting.extend(other for other in neighbours[node] if not seen[other])
    return torch.tensor(order)


# -- rectangles, for plain PyTorch -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bucket:
    """R nodes with similar numbers of entries, padded to T."""

    nodes: Tensor
    """[R] int64"""
    others: Tensor
    """[R, T] int64"""
    positions: Tensor
    """[R, T] int64"""
    valid: Tensor
    """[R, T] bool: False in the padding."""
    filled: Tensor
    """[…] int64: flat indices at which `valid` is True."""


@dataclass(frozen=True)
class Buckets:
    """The ones of a mask in rectangles; every node is in one bucket by row and in one by column."""

    num_ones: int
    flat: Tensor
    """As in `NeighbourLists`."""
    rows: list[Bucket]
    columns: list[Bucket]


def build_buckets(lists: NeighbourLists) -> Buckets:
    return Buckets(lists.num_ones, lists.flat, _buckets(lists.rows), _buckets(lists.columns))


def _buckets(side: Side) -> list[Bucket]:
    """Group nodes by their number of entries, rounded up to a power of two: padding at most doubles them."""
    count = side.start.diff().long()
    size = 2 ** torch.ceil(torch.log2(count.double())).long()
    return [_bucket(side, (size == width).nonzero().flatten(), width) for width in sorted(set(size.tolist()))]


def _bucket(side: Side, nodes: Tensor, width: int) -> Bucket:
    slot = torch.arange(width, device=nodes.device)
    first = side.start[nodes].long().unsqueeze(1)
    valid = slot < side.start[nodes + 1].unsqueeze(1) - first
    # padding repeats a neighbour, so that a NaN in any other node does not spread
    entry = torch.where(valid, first + slot, first)
    filled = valid.flatten().nonzero().flatten()
    return Bucket(nodes, side.other[entry].long(), side.position[entry].long(), valid, filled)
