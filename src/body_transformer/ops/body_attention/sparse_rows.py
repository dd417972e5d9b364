# mypy: ignore-errors
"""Loads and stores of the sparse kernels: rows of a (sample, head) pair, and entries between two kernels.

The first kernel of the backward pass stores a probability and a score gradient per one of the mask for the second.
"""

import triton
import triton.language as tl

from ..triton_common import LOG2E, to_float32


@triton.jit
def load_rows(x, strides, pair, nodes, here, D: tl.constexpr, DP: tl.constexpr):
    """Load the rows of these nodes as [..., DP] float32; zeros where `here` is False. None = all exist."""
    exists = tl.arange(0, DP)[None, :] < D
    if here is not None:
        exists = exists & here[:, None]
    return to_float32(tl.load(_at(x, strides, pair, nodes, DP), mask=exists, other=0.0))


@triton.jit
def store_rows(x, strides, rows, pair, nodes, here, D: tl.constexpr, DP: tl.constexpr):
    """Store the rows of these nodes where `here` is True."""
    exists = here[:, None] & (tl.arange(0, DP)[None, :] < D)
    tl.store(_at(x, strides, pair, nodes, DP), rows.to(x.dtype.element_ty), mask=exists)


@triton.jit
def _at(x, strides, pair, nodes, DP: tl.constexpr):
    """Return addresses in 64 bits, since a tensor may have more than 2^31 elements."""
    first = x + pair[1].to(tl.int64) * strides[1] + pair[0].to(tl.int64) * strides[0]
    return (first + nodes.to(tl.int64) * strides[2])[:, None] + tl.arange(0, DP)[None, :].to(tl.int64) * strides[3]


@triton.jit
def first_entry(pair, heads, num_ones):
    """Return the index in `between` at which the entries of a pair start."""
    return (pair[0] * heads + pair[1]).to(tl.int64) * num_ones


@triton.jit
def pack(weight, dscore):
    """Pack a probability and its score gradient into one int64, so that one load reads both."""
    high = dscore.to(tl.uint32, bitcast=True).to(tl.uint64) << 32
    return (high | weight.to(tl.uint32, bitcast=True).to(tl.uint64)).to(tl.int64, bitcast=True)


@triton.jit
def unpack(both):
    """Unpack the probability and the score gradient of one int64."""
    weight = both.to(tl.uint32).to(tl.float32, bitcast=True)
    return weight, (both >> 32).to(tl.uint32).to(tl.float32, bitcast=True)


@triton.jit
def base2_scores(q_rows, k_rows, bias, node, neighbour, here, num_nodes, scale):
    """Return the scores of nodes with one neighbour each, to base 2; -inf where there is no neighbour."""
    score = tl.sum(q_rows * k_rows, axis=1) * (scale * LOG2E)
    if bias is not None:
        score += tl.load(bias + node * num_nodes + neighbour, mask=here, other=0.0).to(tl.float32) * LOG2E
    return tl.where(here, score, float("-inf"))


@triton.jit
def finite_shift(highest):
    """Return the shift for scores of this maximum: 0 while all scores are -inf, since -inf - -inf is NaN."""
    return tl.where(highest == float("-inf"), 0.0, highest)
