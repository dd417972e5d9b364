# mypy: ignore-errors
"""Attention over neighbour lists, as Triton kernels; `sparse.py` launches them.

Nothing is read or computed where the mask is False. All arithmetic is float32, by multiplying and summing. Light nodes
are handled BLOCK at a time, each with up to SLOTS neighbours; heavy ones by a program each, which goes over its
neighbours CHUNK at a time. `row` counts the (sample, head, node) triples of one kind, nodes fastest.
"""

import triton
import triton.language as tl

from ..kernel_arithmetic import LOG2E, to_float32


@triton.jit(do_not_specialize=["num_rows"])  # the batch changes often
def forward_light(
    q, k, v, bias, out, q_strides, k_strides, v_strides, out_strides,
    nodes, start, other, num_rows, num_light: tl.constexpr, num_nodes, heads: tl.constexpr, scale,
    D: tl.constexpr, DP: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, node, pair, first, count = _light_rows(nodes, start, num_rows, num_light, BLOCK)
    q_row = _rows(q, q_strides, pair, node, heads, D, DP)
    scores = ()
    for slot in tl.static_range(SLOTS):
        here = slot < count
        neighbour = tl.load(other + first + slot, mask=here, other=0)
        score = _scores(q_row, k, k_strides, bias, pair, node, neighbour, here, num_nodes, heads, scale, D, DP)
        scores += (score,)
    shift = finite_shift(_highest(scores, SLOTS))
    total = tl.zeros([BLOCK], tl.float32)
    attended = tl.zeros([BLOCK, DP], tl.float32)
    for slot in tl.static_range(SLOTS):
        here = slot < count
        neighbour = tl.load(other + first + slot, mask=here, other=0)
        weight = tl.exp2(scores[slot] - shift)
        total += weight
        attended += weight[:, None] * _rows_where(v, v_strides, pair, neighbour, here, heads, D, DP)
    _store_rows(out, out_strides, attended * (1 / total)[:, None], pair, node, row < num_rows, heads, D, DP)


@triton.jit(do_not_specialize=["num_rows"])  # the batch changes often
def backward_rows_light(
    q, k, v, bias, grad_out, dq, p, ds, q_strides, k_strides, v_strides, grad_out_strides, dq_strides,
    nodes, start, other, num_rows, num_light: tl.constexpr, num_nodes, num_ones, heads: tl.constexpr, scale,
    D: tl.constexpr, DP: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dq, and for each one of the mask its probability p and the gradient ds of its score."""
    row, node, pair, first, count = _light_rows(nodes, start, num_rows, num_light, BLOCK)
    q_row = _rows(q, q_strides, pair, node, heads, D, DP)
    do_row = _rows(grad_out, grad_out_strides, pair, node, heads, D, DP)
    SLOTS_PADDED: tl.constexpr = triton.next_power_of_2(SLOTS)
    slots = tl.arange(0, SLOTS_PADDED)[None, :]
    scores = tl.full([BLOCK, SLOTS_PADDED], float("-inf"), tl.float32)
    dp = tl.zeros([BLOCK, SLOTS_PADDED], tl.float32)
    for slot in tl.static_range(SLOTS):
        here = slot < count
        neighbour = tl.load(other + first + slot, mask=here, other=0)
        score = _scores(q_row, k, k_strides, bias, pair, node, neighbour, here, num_nodes, heads, scale, D, DP)
        scores = tl.where(slots == slot, score[:, None], scores)
        dp_slot = tl.sum(do_row * _rows_where(v, v_strides, pair, neighbour, here, heads, D, DP), axis=1)
        dp = tl.where(slots == slot, dp_slot[:, None], dp)
    weights = tl.exp2(scores - tl.max(scores, axis=1)[:, None])
    weights = weights * (1 / tl.sum(weights, axis=1))[:, None]
    dscores = weights * (dp - tl.sum(weights * dp, axis=1)[:, None])
    at = (pair.to(tl.int64) * num_ones + first)[:, None] + slots
    exists = (slots < count[:, None]) & (row < num_rows)[:, None]
    tl.store(p + at, weights, mask=exists)
    tl.store(ds + at, dscores, mask=exists)
    dq_row = tl.zeros([BLOCK, DP], tl.float32)
    for slot in tl.static_range(SLOTS):
        here = slot < count
        neighbour = tl.load(other + first + slot, mask=here, other=0)
        ds_slot = tl.sum(tl.where(slots == slot, dscores, 0.0), axis=1)
        dq_row += ds_slot[:, None] * _rows_where(k, k_strides, pair, neighbour, here, heads, D, DP)
    _store_rows(dq, dq_strides, dq_row * scale, pair, node, row < num_rows, heads, D, DP)


@triton.jit(do_not_specialize=["num_rows"])  # the batch changes often
def backward_columns_light(
    q, grad_out, p, ds, dk, dv, q_strides, grad_out_strides, dk_strides, dv_strides,
    nodes, start, other, position, num_rows, num_light: tl.constexpr, num_ones, heads: tl.constexpr, scale,
    D: tl.constexpr, DP: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dk and dv of a node from all who attend to it."""
    row, node, pair, first, count = _light_rows(nodes, start, num_rows, num_light, BLOCK)
    dk_row = tl.zeros([BLOCK, DP], tl.float32)
    dv_row = tl.zeros([BLOCK, DP], tl.float32)
    for slot in tl.static_range(SLOTS):
        here = slot < count
        attender = tl.load(other + first + slot, mask=here, other=0)
        at = pair.to(tl.int64) * num_ones + tl.load(position + first + slot, mask=here, other=0)
        p_slot = tl.load(p + at, mask=here, other=0.0)
        ds_slot = tl.load(ds + at, mask=here, other=0.0)
        dv_row += p_slot[:, None] * _rows_where(grad_out, grad_out_strides, pair, attender, here, heads, D, DP)
        dk_row += ds_slot[:, None] * _rows_where(q, q_strides, pair, attender, here, heads, D, DP)
    _store_rows(dk, dk_strides, dk_row * scale, pair, node, row < num_rows, heads, D, DP)
    _store_rows(dv, dv_strides, dv_row, pair, node, row < num_rows, heads, D, DP)


@triton.jit
def _highest(scores, SLOTS: tl.constexpr):
    highest = scores[0]
    for slot in tl.static_range(1, SLOTS):
        highest = tl.maximum(highest, scores[slot])
    return highest


@triton.jit
def finite_shift(highest):
    """What to subtract from scores of this maximum: while all are -inf, -inf - -inf would be NaN."""
    return tl.where(highest == float("-inf"), 0.0, highest)


@triton.jit
def _scores(
    q_row, k, k_strides, bias, pair, node, neighbour, here, num_nodes, heads, scale,
    D: tl.constexpr, DP: tl.constexpr,
):  # fmt: skip
    """[BLOCK] to base 2, of each row with one of its neighbours; -inf where it has none here."""
    score = tl.sum(q_row * _rows_where(k, k_strides, pair, neighbour, here, heads, D, DP), axis=1) * (scale * LOG2E)
    if bias is not None:
        score += tl.load(bias + node * num_nodes + neighbour, mask=here, other=0.0).to(tl.float32) * LOG2E
    return tl.where(here, score, float("-inf"))


@triton.jit
def _light_rows(nodes, start, num_rows, num_light, BLOCK: tl.constexpr):
    """The BLOCK rows of this program; those past the end repeat the last, and are never stored."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    held = tl.minimum(row, num_rows - 1)
    node = tl.load(nodes + held % num_light)
    first = tl.load(start + node)
    return row, node, held // num_light, first, tl.load(start + node + 1) - first


@triton.jit
def _at(x, strides, pair, node, heads, DP: tl.constexpr):
    """Addresses [BLOCK, DP] of the rows of these nodes; 64 bits, since a tensor may pass 2^31 elements."""
    wide = (pair // heads).to(tl.int64) * strides[0] + (pair % heads).to(tl.int64) * strides[1]
    first = (x + wide)[:, None] + tl.arange(0, DP)[None, :].to(tl.int64) * strides[3]
    return first + (node.to(tl.int64) * strides[2])[:, None]


@triton.jit
def _rows(x, strides, pair, node, heads, D: tl.constexpr, DP: tl.constexpr):
    return to_float32(tl.load(_at(x, strides, pair, node, heads, DP), mask=tl.arange(0, DP)[None, :] < D, other=0.0))


@triton.jit
def _rows_where(x, strides, pair, node, here, heads, D: tl.constexpr, DP: tl.constexpr):
    exists = here[:, None] & (tl.arange(0, DP)[None, :] < D)
    return to_float32(tl.load(_at(x, strides, pair, node, heads, DP), mask=exists, other=0.0))


@triton.jit
def _store_rows(x, strides, value, pair, node, here, heads, D: tl.constexpr, DP: tl.constexpr):
    exists = here[:, None] & (tl.arange(0, DP)[None, :] < D)
    tl.store(_at(x, strides, pair, node, heads, DP), value.to(x.dtype.element_ty), mask=exists)
