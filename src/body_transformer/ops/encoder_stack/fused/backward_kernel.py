# mypy: ignore-errors
"""The backward pass of all layers in one launch: the gradient of the residual stream stays in registers throughout.

Activations are recomputed from the saved normalised values. Weight gradients are sums over all rows; this kernel stores
only their factors, and the two gradient kernels multiply them. The matrix units read float32 weights only with the
summed index contiguous, so these are passed twice: as stored, and transposed ("turned"). They read bfloat16 both ways.
"""

import triton
import triton.language as tl

from ...triton_common import LOG2E
from .tiles import (
    LN2,
    by_row,
    by_sample,
    dot,
    fence,
    last_sum,
    load_allowed,
    load_matrix,
    load_vector,
    normalise_backward,
    operand,
    per_sample,
    program_rows,
    softmax_numerator,
    transposed,
)


@triton.jit
def feed_forward_backward(
    y, du, weight1, turned1, bias1, weight2,
    E: tl.constexpr, EP: tl.constexpr, F: tl.constexpr, FC: tl.constexpr, TURNED: tl.constexpr,
    STAGES: tl.constexpr, FENCE: tl.constexpr, DT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute the gradient at y from du [R, EP], the gradient at the sum before the second LayerNorm.

    It is the sum over the residual path and the feed-forward path.
    """
    e = tl.arange(0, EP)
    f = tl.arange(0, FC)
    whole: tl.constexpr = (E == EP) and (F % FC == 0)
    zeros = tl.zeros([y.shape[0], FC], tl.float32)
    dy = du
    du = operand(du, DT, PRECISION)
    for c in tl.range(0, (F + FC - 1) // FC, num_stages=STAGES):
        unit = c * FC + f
        w1 = load_matrix(weight1, unit[:, None], e[None, :], E, F, E, whole)  # [FC, EP]
        w1t = tl.trans(w1)
        fence(c, FENCE)
        hidden = dot(y, w1t, zeros, PRECISION) + load_vector(bias1, unit, F, F % FC == 0)
        if TURNED:
            w2 = load_matrix(weight2, unit[None, :], e[:, None], E, F, E, whole)
            w1 = load_matrix(turned1, e[None, :], unit[:, None], F, E, F, whole)
        else:
            w2 = load_matrix(weight2, e[:, None], unit[None, :], F, E, F, whole)  # [EP, FC]
        grad = operand(tl.where(hidden > 0.0, dot(du, w2, zeros, PRECISION), 0.0), DT, PRECISION)
        dy = dot(grad, w1, dy, PRECISION)
    return dy


@triton.jit
def attention_backward(
    x, du, in_weight, turned_in, in_bias, out_weight, allowed, scale, mixed_ptr, grad_qkv_ptr, rows, exist,
    S: tl.constexpr, NP: tl.constexpr, E: tl.constexpr, EP: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
    DP: tl.constexpr, TURNED: tl.constexpr, STAGES: tl.constexpr, FENCE: tl.constexpr, DT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute the gradient at x from du [R, EP], the gradient at the sum before the first LayerNorm.

    It is the sum over the residual path and the attention path.
    """
    e = tl.arange(0, EP)
    d = tl.arange(0, DP)
    whole: tl.constexpr = (E == EP) and (D == DP)
    zeros = tl.zeros([S * NP, DP], tl.float32)
    per_head = per_sample(NP, DP, S)
    pairs = per_sample(NP, NP, S)
    dx = du
    du = operand(du, DT, PRECISION)
    for h in tl.range(0, H, num_stages=STAGES):
        weight = in_weight + h * D * E
        bias = in_bias + h * D
        at = rows[:, None] * E + h * D + d[None, :]
        at3 = rows[:, None] * (3 * E) + h * D + d[None, :]
        inside = exist[:, None] & (d < D)[None, :]
        wq = load_matrix(weight, d[:, None], e[None, :], E, D, E, whole)  # [DP, EP]
        wqt = tl.trans(wq)
        fence(h, FENCE)
        # recompute the head: queries, keys, softmax, values
        q = dot(x, wqt, zeros, PRECISION) + load_vector(bias, d, D, D == DP)
        q = by_sample(operand(q * (scale * LOG2E), DT, PRECISION), S)
        wk = load_matrix(weight + E * E, d[:, None], e[None, :], E, D, E, whole)
        k = dot(x, tl.trans(wk), zeros, PRECISION) + load_vector(bias + E, d, D, D == DP)
        k = by_sample(operand(k, DT, PRECISION), S)
        p, total = softmax_numerator(dot(q, transposed(k, S), pairs, PRECISION), allowed, S)
        p *= 1.0 / total
        rounded = operand(p, DT, PRECISION)
        wv = load_matrix(weight + 2 * E * E, d[:, None], e[None, :], E, D, E, whole)
        v = dot(x, tl.trans(wv), zeros, PRECISION) + load_vector(bias + 2 * E, d, D, D == DP)
        v = by_sample(operand(v, DT, PRECISION), S)
        mixed = by_row(dot(rounded, v, per_head, PRECISION), S)
        tl.store(mixed_ptr + at, mixed.to(DT), mask=inside)

        if TURNED:
            wo = load_matrix(out_weight + h * D * E, d[None, :], e[:, None], E, D, E, whole)
            wq = load_matrix(turned_in + h * D, e[None, :], d[:, None], 3 * E, E, D, whole)
            wk = load_matrix(turned_in + E + h * D, e[None, :], d[:, None], 3 * E, E, D, whole)
            wv = load_matrix(turned_in + 2 * E + h * D, e[None, :], d[:, None], 3 * E, E, D, whole)
        else:
            wo = load_matrix(out_weight + h * D, e[:, None], d[None, :], E, E, D, whole)  # [EP, DP]
        # gradients of values, scores, queries and keys, each stored as soon as it is computed
        grad = by_sample(operand(dot(du, wo, zeros, PRECISION), DT, PRECISION), S)
        dv = by_row(dot(transposed(rounded, S), grad, per_head, PRECISION), S)
        tl.store(grad_qkv_ptr + at3 + 2 * E, dv.to(DT), mask=inside)
        dx = dot(operand(dv, DT, PRECISION), wv, dx, PRECISION)
        dp = dot(grad, transposed(v, S), pairs, PRECISION)
        ds = operand(p * (dp - last_sum(p * dp, S)), DT, PRECISION)
        dq = by_row(dot(ds, k, per_head, PRECISION), S) * scale
        tl.store(grad_qkv_ptr + at3, dq.to(DT), mask=inside)
        dx = dot(operand(dq, DT, PRECISION), wq, dx, PRECISION)
        dk = by_row(dot(transposed(ds, S), q, per_head, PRECISION), S) * LN2
        tl.store(grad_qkv_ptr + at3 + E, dk.to(DT), mask=inside)
        dx = dot(operand(dk, DT, PRECISION), wk, dx, PRECISION)
    return dx


@triton.jit
def norm_backward(grad, normed, rstd, weight_ptr, sums_ptr, E: tl.constexpr, EP: tl.constexpr):
    """Return the gradient before a LayerNorm; store these rows' part of the gradients of its weight and bias."""
    e = tl.arange(0, EP)
    tl.store(sums_ptr + e, tl.sum(grad * normed, axis=0), mask=e < E)
    tl.store(sums_ptr + E + e, tl.sum(grad, axis=0), mask=e < E)
    return normalise_backward(grad, normed, rstd, load_vector(weight_ptr, e, E, E == EP), E)


@triton.jit(do_not_specialize=["batch", "first_layer", "count", "num_layers", "masked_layers"])
def backward_kernel(
    # inputs
    grad_out_ptr, x_ptr, saved_ptr, rstd_ptr,
    in_weight, in_bias, out_weight, out_bias, norm1, weight1, bias1, weight2, bias2, norm2,
    turned_in, turned_out, turned1, turned2, mask_ptr,
    # outputs
    grad_x_ptr, mixed_ptr, grad_qkv_ptr, grad_sum1_ptr, grad_sum2_ptr, norm_sums_ptr,
    # sizes
    batch, first_layer, count, num_layers, masked_layers, scale,
    N: tl.constexpr, NP: tl.constexpr, S: tl.constexpr, E: tl.constexpr, EP: tl.constexpr, F: tl.constexpr,
    FC: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, LAYER_NUMEL: tl.constexpr,
    STAGES: tl.constexpr, FENCE: tl.constexpr, DT: tl.constexpr, PRECISION: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """Backpropagate through layers `first_layer` to `first_layer + count - 1`, last layer first.

    The input is the gradient of their output [B, N, E]. Store the gradient of their input, the factors of the weight
    gradients [count, B * N, width], and this program's part of the LayerNorms' gradients [programs, L, 4E].
    """
    program = tl.program_id(0)
    first, rows, exist = program_rows(batch, N, NP, S)
    e = tl.arange(0, EP)
    at = rows[:, None] * E + e[None, :]
    inside = exist[:, None] & (e < E)[None, :]
    num_rows = batch.to(tl.int64) * N
    plane = num_rows * E
    grad = tl.load(grad_out_ptr + first * E + at, mask=inside, other=0.0).to(tl.float32)
    x_ptr += first * E
    saved_ptr += first * E
    rstd_ptr += first
    mixed_ptr += first * E
    grad_qkv_ptr += first * (3 * E)
    grad_sum1_ptr += first * E
    grad_sum2_ptr += first * E
    for step in range(count):
        slot = count - 1 - step  # index among the factors
        layer = first_layer + slot
        p = layer * LAYER_NUMEL
        sums = norm_sums_ptr + (program * num_layers + layer).to(tl.int64) * (4 * E)
        # the feed-forward part and the LayerNorm after it
        # values are loaded twice: keeping them or loading them earlier would cost more in registers than it saves
        rstd = tl.load(rstd_ptr + (2 * layer + 1) * num_rows + rows, mask=exist, other=0.0)
        normed = tl.load(saved_ptr + (2 * layer + 1) * plane + at, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(saved_ptr + 2 * layer * plane + at, mask=inside, other=0.0).to(tl.float32)
        du = norm_backward(grad, normed, rstd, norm2 + p, sums + 2 * E, E, EP)
        tl.store(grad_sum2_ptr + slot * plane + at, du.to(DT), mask=inside)
        y = y * load_vector(norm1 + p, e, E, E == EP) + load_vector(norm1 + p + E, e, E, E == EP)
        grad = feed_forward_backward(
            operand(y, DT, PRECISION), du, weight1 + p, turned1 + p, bias1 + p, (turned2 if TURNED else weight2) + p,
            E, EP, F, FC, TURNED, STAGES, FENCE, DT, PRECISION,
        )  # fmt: skip

        # attention and the LayerNorm after it
        rstd = tl.load(rstd_ptr + 2 * layer * num_rows + rows, mask=exist, other=0.0)
        normed = tl.load(saved_ptr + 2 * layer * plane + at, mask=inside, other=0.0).to(tl.float32)
        if layer > 0:
            before = norm2 + p - LAYER_NUMEL
            x = tl.load(saved_ptr + (2 * layer - 1) * plane + at, mask=inside, other=0.0).to(tl.float32)
            x = x * load_vector(before, e, E, E == EP) + load_vector(before + E, e, E, E == EP)
        else:
            x = tl.load(x_ptr + at, mask=inside, other=0.0)
        du = norm_backward(grad, normed, rstd, norm1 + p, sums, E, EP)
        tl.store(grad_sum1_ptr + slot * plane + at, du.to(DT), mask=inside)
        grad = attention_backward(
            operand(x, DT, PRECISION), du, in_weight + p, turned_in + p, in_bias + p,
            (turned_out if TURNED else out_weight) + p,
            load_allowed(mask_ptr, (masked_layers >> layer) & 1, N, NP, S), scale,
            mixed_ptr + slot * plane, grad_qkv_ptr + slot * 3 * plane, rows, exist,
            S, NP, E, EP, H, D, DP, TURNED, STAGES, FENCE, DT, PRECISION,
        )  # fmt: skip
    tl.store(grad_x_ptr + first * E + at, grad, mask=inside)
