# mypy: ignore-errors
"""How the sparse kernels read and write the rows of a pair (sample, head).

Also how one kernel of the backward pass leaves probabilities and gradients of scores to the next.
"""

import triton
import triton.language as tl

from ..triton_common import LOG2E, to_float32


@triton.jit
def load_rows(x, strides, pair, nodes, here, D: tl.constexpr, DP: tl.constexpr):
    """[…, DP] float32: the rows of these nodes; zeros where `here` is False; None = all are there."""
    exists = tl.arange(0, DP)[None, :] < D
    if here is not None:
        exists = exists & here[:, None]
    return to_float32(tl.load(_at(x, strides, pair, nodes, DP), mask=exists, other=0.0))


@triton.jit
def store_rows(x, strides, rows, pair, nodes, here, D: tl.constexpr, DP: tl.constexpr):
    exists = here[:, None] & (tl.arange(0, DP)[None, :] < D)
    tl.store(_at(x, strides, pair, nodes, DP), rows.to(x.dtype.element_ty), mask=exists)


@triton.jit
def _at(x, strides, pair, nodes, DP: tl.constexpr):
    """Addresses; 64 bits, since a tensor may pass 2^31 elements."""
    first = x + pair[1].to(tl.int64) * strides[1] + pair[0].to(tl.int64) * strides[0]
    return (first + nodes.to(tl.int64) * strides[2])[:, None] + tl.arange(0, DP)[None, :].to(tl.int64) * strides[3]


@triton.jit
def first_entry(pair, heads, num_ones):
    """Where those of a pair begin in what the backward pass has between its kernels."""
    return (pair[0] * heads + pair[1]).to(tl.int64) * num_ones


@triton.jit
def pack(weight, dscore):
    """A probability and the gradient of its score as one int64: the backward pass reads both at once."""
    high = dscore.to(tl.uint32, bitcast=True).to(tl.uint64) << 32
    return (high | weight.to(tl.uint32, bitcast=True).to(tl.uint64)).to(tl.int64, bitcast=True)


@triton.jit
def unpack(both):
    weight = both.to(tl.uint32).to(tl.float32, bitcast=True)
    return weight, (both >> 32).to(tl.uint32).to(tl.float32, bitcast=True)


@triton.jit
def base2_scores(q_rows, k_rows, bias, node, neighbour, here, num_nodes, scale):
    """Of nodes with neighbours, to base 2; -inf where there is none."""
    score = tl.sum(q_rows * k_rows, axis=1) * (scale * LOG2E)
    if bias is not None:
        score += tl.load(bias + node * num_nodes + neighbour, mask=here, other=0.0).to(tl.float32) * LOG2E
    return tl.where(here, score, float("-inf"))


@triton.jit
def finite_shift(highest):
    """What to subtract from scores of this maximum: while all are -inf, -inf - -inf would be NaN."""
    return tl.where(highest == float("-inf"), 0.0, highest)
