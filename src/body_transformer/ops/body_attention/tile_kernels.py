# mypy: ignore-errors
"""Triton kernels for dense attention of a whole body in one tile; `tile.py` launches them.

A program holds PACK (sample, head) pairs, each padded to NP nodes. With PACK > 1 tiles have three axes and `tl.dot` is
batched, so that pairs cannot affect each other. With PACK == 1 they have two axes, which larger matrix instructions
support. The head's width is processed in pieces of DC, since whole tiles would not fit into registers. The pieces are
read again for each product, from the cache.
"""

import triton
import triton.language as tl

from ..triton_common import LOG2E, to_tf32


@triton.jit(do_not_specialize=["num_pairs"])  # the batch changes often
def forward(
    q, k, v, mask, bias, out,
    q_strides, k_strides, v_strides, out_strides,
    num_pairs, heads, scale,
    N: tl.constexpr, D: tl.constexpr, NP: tl.constexpr, DC: tl.constexpr, PACK: tl.constexpr,
    PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Compute softmax(q kᵀ scale + bias) v where the mask is True."""
    allowed, added = _pairwise(mask, bias, N, NP, PACK)
    pair = _pairs_of(tl.program_id(0), PACK)
    scores = _products(q, q_strides, k, k_strides, pair, num_pairs, heads, N, D, NP, DC, PACK, PRECISION, WIDE)
    p = _softmax(scores * (scale * LOG2E) + added, allowed, PACK)
    _multiply(p, v, v_strides, out, out_strides, pair, num_pairs, heads, N, D, NP, DC, PACK, PRECISION, WIDE)


@triton.jit(do_not_specialize=["num_pairs"])  # the batch changes often
def backward(
    q, k, v, mask, bias, grad_out, dq, dk, dv, bias_partials,
    q_strides, k_strides, v_strides, grad_out_strides, dq_strides, dk_strides, dv_strides,
    num_pairs, heads, scale,
    N: tl.constexpr, D: tl.constexpr, NP: tl.constexpr, DC: tl.constexpr, PACK: tl.constexpr,
    PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Compute all gradients from q, k, v alone; a program loops over many tiles and sums its own bias gradient."""
    allowed, added = _pairwise(mask, bias, N, NP, PACK)
    if bias is not None:
        dbias = tl.zeros([PACK, NP, NP] if PACK > 1 else [NP, NP], tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(num_pairs, PACK), tl.num_programs(0)):
        pair = _pairs_of(tile, PACK)
        scores = _products(q, q_strides, k, k_strides, pair, num_pairs, heads, N, D, NP, DC, PACK, PRECISION, WIDE)
        p = _softmax(scores * (scale * LOG2E) + added, allowed, PACK)
        _multiply(tl.trans(p), grad_out, grad_out_strides, dv, dv_strides, pair, num_pairs, heads,
                  N, D, NP, DC, PACK, PRECISION, WIDE)  # fmt: skip
        dp = _products(grad_out, grad_out_strides, v, v_strides, pair, num_pairs, heads,
                       N, D, NP, DC, PACK, PRECISION, WIDE)  # fmt: skip
        ds = p * (dp - tl.sum(p * dp, axis=2 if PACK > 1 else 1, keep_dims=True))
        if bias is not None:
            dbias += ds
        ds = ds * scale
        _multiply(ds, k, k_strides, dq, dq_strides, pair, num_pairs, heads, N, D, NP, DC, PACK, PRECISION, WIDE)
        _multiply(tl.trans(ds), q, q_strides, dk, dk_strides, pair, num_pairs, heads,
                  N, D, NP, DC, PACK, PRECISION, WIDE)  # fmt: skip
    if bias is not None:
        if PACK > 1:
            dbias = tl.sum(dbias, axis=0)
        i, j = tl.arange(0, NP)[:, None], tl.arange(0, NP)[None, :]
        tl.store(bias_partials + tl.program_id(0) * (N * N) + i * N + j, dbias, mask=(i < N) & (j < N))


@triton.jit
def _pairwise(mask, bias, N: tl.constexpr, NP: tl.constexpr, PACK: tl.constexpr):
    """Return where attention is allowed [NP, NP], and the bias of the scores to base 2."""
    i, j = tl.arange(0, NP)[:, None], tl.arange(0, NP)[None, :]
    inside = (i < N) & (j < N)
    allowed = inside
    if mask is not None:
        allowed = tl.load(mask + i * N + j, mask=inside, other=0) != 0
    allowed = allowed | (i >= N)  # padding rows attend to all: a row without a neighbour would be NaN
    added = tl.zeros([NP, NP], tl.float32)
    if bias is not None:
        added = tl.load(bias + i * N + j, mask=inside, other=0.0).to(tl.float32) * LOG2E
    if PACK > 1:
        allowed = allowed[None, :, :]
        added = added[None, :, :]
    return allowed, added


@triton.jit
def _softmax(scores, allowed, PACK: tl.constexpr):
    """Compute the softmax [..., NP, NP] of scores to base 2 over the last axis."""
    AXIS: tl.constexpr = 2 if PACK > 1 else 1
    scores = tl.where(allowed, scores, float("-inf"))
    p = tl.exp2(scores - tl.max(scores, axis=AXIS, keep_dims=True))
    return p / tl.sum(p, axis=AXIS, keep_dims=True)


@triton.jit
def _products(
    a, a_strides, b, b_strides, pair, num_pairs, heads,
    N: tl.constexpr, D: tl.constexpr, NP: tl.constexpr, DC: tl.constexpr, PACK: tl.constexpr,
    PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Return a bᵀ [..., NP, NP]."""
    total = tl.zeros([PACK, NP, NP] if PACK > 1 else [NP, NP], tl.float32)
    for start in tl.static_range(0, D, DC):
        a_at, exists = _places(a, a_strides, pair, num_pairs, heads, start, N, D, NP, DC, PACK, WIDE)
        b_at, exists = _places(b, b_strides, pair, num_pairs, heads, start, N, D, NP, DC, PACK, WIDE)
        a_tile = tl.load(a_at, mask=exists, other=0.0)
        b_tile = tl.load(b_at, mask=exists, other=0.0)
        total = _dot(a_tile, tl.trans(b_tile), total, PRECISION)
    return total


@triton.jit
def _multiply(
    weights, x, x_strides, y, y_strides, pair, num_pairs, heads,
    N: tl.constexpr, D: tl.constexpr, NP: tl.constexpr, DC: tl.constexpr, PACK: tl.constexpr,
    PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Store y = weights x."""
    weights = weights.to(x.dtype.element_ty)
    for start in tl.static_range(0, D, DC):
        x_at, exists = _places(x, x_strides, pair, num_pairs, heads, start, N, D, NP, DC, PACK, WIDE)
        y_at, exists = _places(y, y_strides, pair, num_pairs, heads, start, N, D, NP, DC, PACK, WIDE)
        zero = tl.zeros([PACK, NP, DC] if PACK > 1 else [NP, DC], tl.float32)
        y_tile = _dot(weights, tl.load(x_at, mask=exists, other=0.0), zero, PRECISION)
        tl.store(y_at, y_tile.to(y.dtype.element_ty), mask=exists)


@triton.jit
def _dot(a, b, total, PRECISION: tl.constexpr):
    if PRECISION == "tf32":
        a = to_tf32(a)
        b = to_tf32(b)
    return tl.dot(a, b, total, input_precision=PRECISION)


@triton.jit
def _pairs_of(tile, PACK: tl.constexpr):
    """Return the (sample, head) pairs of a tile: [PACK], or a scalar for one pair."""
    if PACK > 1:
        return tile * PACK + tl.arange(0, PACK)
    else:
        return tile


@triton.jit
def _places(
    x, strides, pair, num_pairs, heads, start,
    N: tl.constexpr, D: tl.constexpr, NP: tl.constexpr, DC: tl.constexpr, PACK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Return the addresses [..., NP, DC] of the piece from `start` on, and which of them exist.

    WIDE: a body spans 2^31 elements or more, so its offsets need 64 bits. Offsets of pairs always have 64 bits.
    """
    node, d = tl.arange(0, NP)[:, None], tl.arange(0, DC)[None, :] + start
    exists = (node < N) & (d < D)
    if WIDE:
        node, d = node.to(tl.int64), d.to(tl.int64)
    within = node * strides[2] + d * strides[3]
    base = tl.cast(pair // heads, tl.int64) * strides[0] + tl.cast(pair % heads, tl.int64) * strides[1]
    if PACK > 1:
        exists = exists[None, :, :] & (pair < num_pairs)[:, None, None]
        return (x + base)[:, None, None] + within[None, :, :], exists
    else:
        return (x + base) + within, exists
