# mypy: ignore-errors
"""Triton kernels for nodes with many neighbours ("heavy"): one node per program, CHUNK neighbours at a time."""

import triton
import triton.language as tl

from .sparse_rows import base2_scores, finite_shift, first_entry, load_rows, pack, store_rows, unpack


@triton.jit
def forward_heavy(
    q, k, v, bias, out, q_strides, k_strides, v_strides, out_strides,
    nodes, start, other, num_heavy, num_nodes, heads, scale,
    D: tl.constexpr, DP: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Compute the attention with a running maximum of the scores."""
    node, pair, first, last = _heavy_row(nodes, start, num_heavy, heads)
    q_row = _row(q, q_strides, pair, node, D, DP)
    highest = float("-inf")
    total = 0.0
    attended = tl.zeros([DP], tl.float32)
    for chunk in range(first, last, CHUNK):
        here, neighbour = _chunk(other, chunk, last, CHUNK)
        k_rows = load_rows(k, k_strides, pair, neighbour, here, D, DP)
        score = base2_scores(q_row[None, :], k_rows, bias, node, neighbour, here, num_nodes, scale)
        higher = tl.maximum(highest, tl.max(score, axis=0))
        shift = finite_shift(higher)
        shrink = tl.exp2(highest - shift)
        weight = tl.exp2(score - shift)
        v_rows = load_rows(v, v_strides, pair, neighbour, here, D, DP)
        attended = attended * shrink + tl.sum(weight[:, None] * v_rows, axis=0)
        total = total * shrink + tl.sum(weight, axis=0)
        highest = higher
    _store_row(out, out_strides, attended / total, pair, node, D, DP)


@triton.jit
def backward_rows_heavy(
    q, k, v, bias, grad_out, dq, between, q_strides, k_strides, v_strides, grad_out_strides, dq_strides,
    nodes, start, other, num_heavy, num_nodes, num_ones, heads, scale,
    D: tl.constexpr, DP: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Compute dq and the packed entries.

    The first loop computes the softmax's denominator and the mean of dp, the second the gradients.
    """
    node, pair, first, last = _heavy_row(nodes, start, num_heavy, heads)
    q_row = _row(q, q_strides, pair, node, D, DP)
    do_row = _row(grad_out, grad_out_strides, pair, node, D, DP)
    highest = float("-inf")
    total = 0.0
    mean = 0.0
    for chunk in range(first, last, CHUNK):
        here, neighbour = _chunk(other, chunk, last, CHUNK)
        k_rows = load_rows(k, k_strides, pair, neighbour, here, D, DP)
        score = base2_scores(q_row[None, :], k_rows, bias, node, neighbour, here, num_nodes, scale)
        dp = tl.sum(do_row[None, :] * load_rows(v, v_strides, pair, neighbour, here, D, DP), axis=1)
        higher = tl.maximum(highest, tl.max(score, axis=0))
        shift = finite_shift(higher)
        shrink = tl.exp2(highest - shift)
        weight = tl.exp2(score - shift)
        total = total * shrink + tl.sum(weight, axis=0)
        mean = mean * shrink + tl.sum(weight * dp, axis=0)
        highest = higher
    mean = mean / total
    dq_row = tl.zeros([DP], tl.float32)
    for chunk in range(first, last, CHUNK):
        here, neighbour = _chunk(other, chunk, last, CHUNK)
        k_rows = load_rows(k, k_strides, pair, neighbour, here, D, DP)
        score = base2_scores(q_row[None, :], k_rows, bias, node, neighbour, here, num_nodes, scale)
        dp = tl.sum(do_row[None, :] * load_rows(v, v_strides, pair, neighbour, here, D, DP), axis=1)
        weight = tl.exp2(score - highest) / total
        dscore = weight * (dp - mean)
        at = first_entry(pair, heads, num_ones) + chunk + tl.arange(0, CHUNK)
        tl.store(between + at, pack(weight, dscore), mask=here)
        dq_row += tl.sum(dscore[:, None] * k_rows, axis=0)
    _store_row(dq, dq_strides, dq_row * scale, pair, node, D, DP)


@triton.jit
def backward_columns_heavy(
    q, grad_out, between, dk, dv, q_strides, grad_out_strides, dk_strides, dv_strides,
    nodes, start, other, position, num_heavy, num_ones, heads, scale,
    D: tl.constexpr, DP: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Compute dk and dv of a node from all nodes that attend to it."""
    node, pair, first, last = _heavy_row(nodes, start, num_heavy, heads)
    dk_row = tl.zeros([DP], tl.float32)
    dv_row = tl.zeros([DP], tl.float32)
    for chunk in range(first, last, CHUNK):
        here, attender = _chunk(other, chunk, last, CHUNK)
        entry = tl.load(position + chunk + tl.arange(0, CHUNK), mask=here, other=0)
        weight, dscore = unpack(tl.load(between + first_entry(pair, heads, num_ones) + entry, mask=here, other=0))
        do_rows = load_rows(grad_out, grad_out_strides, pair, attender, here, D, DP)
        q_rows = load_rows(q, q_strides, pair, attender, here, D, DP)
        dv_row += tl.sum(weight[:, None] * do_rows, axis=0)
        dk_row += tl.sum(dscore[:, None] * q_rows, axis=0)
    _store_row(dk, dk_strides, dk_row * scale, pair, node, D, DP)
    _store_row(dv, dv_strides, dv_row, pair, node, D, DP)


@triton.jit
def _heavy_row(nodes, start, num_heavy, heads):
    """Return the program's node, its sample and head, and where the node's entries start and end."""
    row = tl.program_id(0)
    node = tl.load(nodes + row % num_heavy)
    pair = row // num_heavy
    return node, (pair // heads, pair % heads), tl.load(start + node), tl.load(start + node + 1)


@triton.jit
def _chunk(other, chunk, last, CHUNK: tl.constexpr):
    entry = chunk + tl.arange(0, CHUNK)
    here = entry < last
    return here, tl.load(other + entry, mask=here, other=0)


@triton.jit
def _row(x, strides, pair, node, D: tl.constexpr, DP: tl.constexpr):
    return tl.sum(load_rows(x, strides, pair, node + tl.zeros([1], tl.int32), None, D, DP), axis=0)


@triton.jit
def _store_row(x, strides, row, pair, node, D: tl.constexpr, DP: tl.constexpr):
    one = tl.zeros([1], tl.int32)
    store_rows(x, strides, row[None, :], pair, node + one, one == 0, D, DP)
