"""Neighbour lists in rectangles, as plain PyTorch wants them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .neighbour_lists import NeighbourLists, Side


@dataclass(frozen=True)
class Bucket:
    """Nodes with about as many entries each."""

    nodes: Tensor
    """[R] int64"""
    others: Tensor
    """[R, T] int64"""
    positions: Tensor
    """[R, T] int64"""
    valid: Tensor
    """[R, T] bool: False where a node has fewer."""
    filled: Tensor
    """[…] int64: where `valid` is True, flattened."""


@dataclass(frozen=True)
class Buckets:
    """The ones of a mask; every node is in one bucket of its row's entries and in one of its column's."""

    num_nodes: int
    num_ones: int
    flat: Tensor
    """As in `NeighbourLists`."""
    rows: list[Bucket]
    columns: list[Bucket]


def build_buckets(lists: NeighbourLists) -> Buckets:
    return Buckets(lists.num_nodes, lists.num_ones, lists.flat, _buckets(lists.rows), _buckets(lists.columns))


def _buckets(side: Side) -> list[Bucket]:
    """All nodes, by their number of entries rounded up to a power of two: padding at most doubles them."""
    count = side.start.diff().long()
    size = 2 ** torch.ceil(torch.log2(count.double())).long()
    return [_bucket(side, (size == width).nonzero().flatten(), width) for width in sorted(set(size.tolist()))]


def _bucket(side: Side, nodes: Tensor, width: int) -> Bucket:
    slot = torch.arange(width, device=nodes.device)
    first = side.start[nodes].long().unsqueeze(1)
    valid = slot < side.start[nodes + 1].unsqueeze(1) - first
    entry = torch.where(valid, first + slot, first)  # padding repeats a true neighbour: no stranger's NaN comes in
    filled = valid.flatten().nonzero().flatten()
    return Bucket(nodes, side.other[entry].long(), side.position[entry].long(), valid, filled)
