# mypy: ignore-errors
"""The forward pass of all layers in one launch; the residual stream stays in registers throughout."""

import triton
import triton.language as tl

from ...triton_common import LOG2E
from .tiles import (
    by_row,
    by_sample,
    dot,
    fence,
    load_allowed,
    load_matrix,
    load_vector,
    normalise,
    operand,
    per_sample,
    program_rows,
    softmax_numerator,
    transposed,
)


@triton.jit
def attention(
    x, in_weight, in_bias, out_weight, allowed, scale, S: tl.constexpr, NP: tl.constexpr,
    E: tl.constexpr, EP: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
    STAGES: tl.constexpr, FENCE: tl.constexpr, DT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute masked multi-head attention and its output projection without bias, [R, EP] operand -> [R, EP]."""
    e = tl.arange(0, EP)
    d = tl.arange(0, DP)
    whole: tl.constexpr = (E == EP) and (D == DP)
    R: tl.constexpr = S * NP
    out = tl.zeros([R, EP], tl.float32)
    zeros = tl.zeros([R, DP], tl.float32)
    for h in tl.range(0, H, num_stages=STAGES):  # with STAGES = 2, the next head's weights are prefetched
        head = in_weight + h * D * E
        bias = in_bias + h * D
        wq = load_matrix(head, d[None, :], e[:, None], E, D, E, whole)
        fence(h, FENCE)
        q = dot(x, wq, zeros, PRECISION)
        q = (q + load_vector(bias, d, D, D == DP)) * (scale * LOG2E)
        k = dot(x, load_matrix(head + E * E, d[None, :], e[:, None], E, D, E, whole), zeros, PRECISION)
        k = operand(k + load_vector(bias + E, d, D, D == DP), DT, PRECISION)
        q = by_sample(operand(q, DT, PRECISION), S)
        scores = dot(q, transposed(by_sample(k, S), S), per_sample(NP, NP, S), PRECISION)
        p, total = softmax_numerator(scores, allowed, S)
        v = dot(x, load_matrix(head + 2 * E * E, d[None, :], e[:, None], E, D, E, whole), zeros, PRECISION)
        v = operand(v + load_vector(bias + 2 * E, d, D, D == DP), DT, PRECISION)
        # the softmax is normalised after the product
        a = dot(operand(p, DT, PRECISION), by_sample(v, S), per_sample(NP, DP, S), PRECISION)
        a = by_row(a * (1.0 / total), S)
        weight = load_matrix(out_weight + h * D, e[None, :], d[:, None], E, E, D, whole)  # [DP, EP]
        out = dot(operand(a, DT, PRECISION), weight, out, PRECISION)
    return out


@triton.jit
def feed_forward(
    y, weight1, bias1, weight2,
    E: tl.constexpr, EP: tl.constexpr, F: tl.constexpr, FC: tl.constexpr,
    STAGES: tl.constexpr, FENCE: tl.constexpr, DT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute two linear layers with a ReLU between, without the last bias; FC hidden units per step.

    [R, EP] operand -> [R, EP].
    """
    e = tl.arange(0, EP)
    f = tl.arange(0, FC)
    whole: tl.constexpr = (E == EP) and (F % FC == 0)
    R: tl.constexpr = y.shape[0]
    out = tl.zeros([R, EP], tl.float32)
    for c in tl.range(0, (F + FC - 1) // FC, num_stages=STAGES):
        unit = c * FC + f
        w1 = load_matrix(weight1, unit[None, :], e[:, None], E, F, E, whole)  # [EP, FC]
        fence(c, FENCE)
        hidden = dot(y, w1, tl.zeros([R, FC], tl.float32), PRECISION) + load_vector(bias1, unit, F, F % FC == 0)
        w2 = load_matrix(weight2, e[None, :], unit[:, None], F, E, F, whole)  # [FC, EP]
        hidden = tl.maximum(hidden, 0.0, propagate_nan=tl.PropagateNan.ALL)  # the default would turn NaN into 0
        out = dot(operand(hidden, DT, PRECISION), w2, out, PRECISION)
    return out


@triton.jit(do_not_specialize=["batch", "num_layers", "masked_layers"])
def forward_kernel(
    # inputs
    x_ptr, in_weight, in_bias, out_weight, out_bias, norm1, weight1, bias1, weight2, bias2, norm2, mask_ptr,
    # outputs
    out_ptr, saved_ptr, rstd_ptr,
    # sizes
    batch, num_layers, masked_layers, scale, eps,
    N: tl.constexpr, NP: tl.constexpr, S: tl.constexpr, E: tl.constexpr, EP: tl.constexpr, F: tl.constexpr,
    FC: tl.constexpr, H: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, LAYER_NUMEL: tl.constexpr,
    STAGES: tl.constexpr, FENCE: tl.constexpr, DT: tl.constexpr, PRECISION: tl.constexpr, SAVE: tl.constexpr,
):  # fmt: skip
    """Compute x [B, N, E] -> out [B, N, E]; bit l of `masked_layers` is set if layer l is masked.

    With SAVE, store tensors for the backward pass: the normalised values [2L, B * N, E], and 1 / standard deviations
    [2L, B * N].
    """
    first, rows, exist = program_rows(batch, N, NP, S)
    e = tl.arange(0, EP)
    at = rows[:, None] * E + e[None, :]
    inside = exist[:, None] & (e < E)[None, :]
    plane = batch.to(tl.int64) * (N * E)
    num_rows = batch.to(tl.int64) * N
    x = tl.load(x_ptr + first * E + at, mask=inside, other=0.0).to(tl.float32)
    if SAVE:
        saved_ptr += first * E
        rstd_ptr += first
        KEPT: tl.constexpr = saved_ptr.dtype.element_ty
    # Samples share products, in which NaN or infinity would spread from one sample to others. So such a sample is
    # replaced by zeros.
    bad = tl.max(tl.where(x - x == 0.0, 0, 1), axis=1)
    bad = tl.max(tl.reshape(bad, [S, NP]), axis=1)
    bad = tl.reshape(tl.broadcast_to(bad[:, None], [S, NP]), [S * NP]) != 0
    poison = tl.where(bad, float("nan"), 0.0)  # added to the sample's output and, through rstd, gradients
    x = tl.where(bad[:, None], 0.0, x)
    for layer in range(num_layers):
        p = layer * LAYER_NUMEL  # start of this layer's parameters
        allowed = load_allowed(mask_ptr, (masked_layers >> layer) & 1, N, NP, S)
        # attention, residual sum, LayerNorm
        u = attention(
            operand(x, DT, PRECISION), in_weight + p, in_bias + p, out_weight + p, allowed, scale,
            S, NP, E, EP, H, D, DP, STAGES, FENCE, DT, PRECISION,
        )  # fmt: skip
        x, rstd = normalise(u + x + load_vector(out_bias + p, e, E, E == EP), eps, E, EP)
        if SAVE:
            tl.store(saved_ptr + 2 * layer * plane + at, x.to(KEPT), mask=inside)
            tl.store(rstd_ptr + 2 * layer * num_rows + rows, rstd + poison, mask=exist)
        x = x * load_vector(norm1 + p, e, E, E == EP) + load_vector(norm1 + p + E, e, E, E == EP)
        # feed-forward part, residual sum, LayerNorm
        u = feed_forward(
            operand(x, DT, PRECISION), weight1 + p, bias1 + p, weight2 + p, E, EP, F, FC, STAGES, FENCE, DT, PRECISION
        )
        x, rstd = normalise(u + x + load_vector(bias2 + p, e, E, E == EP), eps, E, EP)
        if SAVE:
            tl.store(saved_ptr + (2 * layer + 1) * plane + at, x.to(KEPT), mask=inside)
            tl.store(rstd_ptr + (2 * layer + 1) * num_rows + rows, rstd + poison, mask=exist)
        x = x * load_vector(norm2 + p, e, E, E == EP) + load_vector(norm2 + p + E, e, E, E == EP)
    x += poison[:, None]
    tl.store(out_ptr + first * E + at, x, mask=inside)
