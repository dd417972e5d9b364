# mypy: ignore-errors
"""Weight gradients: sums over all rows of products of two factors, for many encoder layers at once."""

import triton
import triton.language as tl

from .tiles import dot, fence, load_matrix, load_vector, operand, share_of_rows


@triton.jit(do_not_specialize=["num_rows", "rows_each", "first", "num_layers"])
def weight_gradient_kernel(
    # inputs: the gradient at the linear layer's output [L, M, A]; its input [L, M, C] or, with AFTER, normalised values
    grad_ptr, input_ptr, norm_ptr,
    # outputs: a weight [A, C] and a bias [A] within [shares, L, LAYER_NUMEL]
    weight_ptr, bias_ptr,
    # sizes
    num_rows, rows_each, grad_stride, input_stride, first, num_layers,
    A: tl.constexpr, C: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr, ROWS: tl.constexpr,
    LAYER_NUMEL: tl.constexpr, AFTER: tl.constexpr, STAGES: tl.constexpr, FENCE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Sum grad^T input and grad^T 1 over this program's share of the rows, for the layers from `first` on.

    AFTER: the input is the output of the preceding layer's last LayerNorm, but only its normalised values are given. By
    linearity, the LayerNorm's weight and bias are applied to the sums instead.
    """
    layer = tl.program_id(1)
    num_blocks: tl.constexpr = (C + BLOCK_C - 1) // BLOCK_C
    a = tl.program_id(2) // num_blocks * BLOCK_A + tl.arange(0, BLOCK_A)
    c = tl.program_id(2) % num_blocks * BLOCK_C + tl.arange(0, BLOCK_C)
    begin, size = share_of_rows(num_rows, rows_each)
    grad_ptr += layer * grad_stride + begin * A
    input_ptr += layer * input_stride + begin * C
    weight = tl.zeros([BLOCK_A, BLOCK_C], tl.float32)
    DT: tl.constexpr = grad_ptr.dtype.element_ty
    BY_PRODUCT: tl.constexpr = PRECISION == "bf16"  # bfloat16 times one is exact; float32 would lose bits
    if BY_PRODUCT:
        bias = tl.zeros([BLOCK_A, 16], tl.float32)
        ones = tl.full([ROWS, 16], 1.0, tl.float32).to(DT)
    else:
        bias = tl.zeros([BLOCK_A, ROWS], tl.float32)
    for start in tl.range(0, size, ROWS, num_stages=STAGES):
        rows = start + tl.arange(0, ROWS)
        exist = (rows < size)[:, None]
        grad = tl.load(grad_ptr + rows[:, None] * A + a[None, :], mask=exist & (a < A)[None, :], other=0.0)
        given = tl.load(input_ptr + rows[:, None] * C + c[None, :], mask=exist & (c < C)[None, :], other=0.0)
        grad = tl.trans(grad)
        fence(start, FENCE)
        weight = dot(operand(grad, DT, PRECISION), operand(given, DT, PRECISION), weight, PRECISION)
        if BY_PRODUCT:
            bias = dot(grad, ones, bias, PRECISION)
        else:
            bias += grad
    bias = tl.sum(bias, axis=1) * (1.0 / 16 if BY_PRODUCT else 1.0)
    if AFTER:
        norm = norm_ptr + (first + layer - 1) * LAYER_NUMEL + c
        weight *= tl.load(norm, mask=c < C, other=1.0)[None, :]
        weight += bias[:, None] * tl.load(norm + C, mask=c < C, other=0.0)[None, :]
    to = (tl.program_id(0) * num_layers + first + layer).to(tl.int64) * LAYER_NUMEL
    inside = (a < A)[:, None] & (c < C)[None, :]
    tl.store(weight_ptr + to + a[:, None] * C + c[None, :], weight, mask=inside)
    if tl.program_id(2) % num_blocks == 0:
        tl.store(bias_ptr + to + a, bias, mask=a < A)


@triton.jit(do_not_specialize=["num_rows", "rows_each", "first", "num_layers"])
def feed_forward_gradient_kernel(
    # inputs: the gradient at the sum after the feed-forward part and the normalised values before it, [L, M, E] each;
    # the parameters
    grad_ptr, normed_ptr, norm1, weight1, bias1, weight2,
    # outputs, within [shares, L, LAYER_NUMEL]
    weight1_ptr, bias1_ptr, weight2_ptr, bias2_ptr,
    # sizes
    num_rows, rows_each, grad_stride, normed_stride, first, num_layers,
    E: tl.constexpr, EP: tl.constexpr, F: tl.constexpr, FC: tl.constexpr, ROWS: tl.constexpr, LAYER_NUMEL: tl.constexpr,
    STAGES: tl.constexpr, FENCE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Sum the feed-forward part's gradients over this program's rows, for FC hidden units and the layers from `first`.

    Hidden values and their gradients are recomputed, which takes less time than storing and reading them.
    """
    layer = tl.program_id(1)
    unit = tl.program_id(2) * FC + tl.arange(0, FC)
    e = tl.arange(0, EP)
    DT: tl.constexpr = grad_ptr.dtype.element_ty
    p = (first + layer) * LAYER_NUMEL
    begin, size = share_of_rows(num_rows, rows_each)
    normed_ptr += layer * normed_stride + begin * E
    grad_ptr += layer * grad_stride + begin * E
    w1 = load_matrix(weight1 + p, unit[:, None], e[None, :], E, F, E, (E == EP) and (F % FC == 0))
    w2 = load_matrix(weight2 + p, e[None, :], unit[:, None], F, E, F, (E == EP) and (F % FC == 0))  # transposed
    b1 = tl.load(bias1 + p + unit, mask=unit < F, other=0.0)[:, None]
    norm = load_vector(norm1 + p, e, E, E == EP)
    shift = load_vector(norm1 + p + E, e, E, E == EP)
    zeros = tl.zeros([FC, ROWS], tl.float32)
    grad1 = tl.zeros([FC, EP], tl.float32)
    grad2 = tl.zeros([FC, EP], tl.float32)
    sum1 = tl.zeros([FC], tl.float32)
    sum2 = tl.zeros([ROWS, EP], tl.float32)
    for start in tl.range(0, size, ROWS, num_stages=STAGES):
        rows = start + tl.arange(0, ROWS)
        at = rows[:, None] * E + e[None, :]
        inside = (rows < size)[:, None] & (e < E)[None, :]
        y = tl.load(normed_ptr + at, mask=inside, other=0.0).to(tl.float32) * norm + shift
        y = operand(y, DT, PRECISION)
        du = tl.load(grad_ptr + at, mask=inside, other=0.0)
        sum2 += du.to(tl.float32)
        du = operand(du, DT, PRECISION)
        yt = tl.trans(y)
        dut = tl.trans(du)
        fence(start, FENCE)
        hidden = tl.maximum(dot(w1, yt, zeros, PRECISION) + b1, 0.0, propagate_nan=tl.PropagateNan.ALL)
        grad = tl.where(hidden > 0.0, dot(w2, dut, zeros, PRECISION), 0.0)
        sum1 += tl.sum(grad, axis=1)
        # the last product must not read a prefetched tile: Triton would overwrite the tile without waiting for it
        grad2 = dot(operand(hidden, DT, PRECISION), du, grad2, PRECISION)
        grad1 = dot(operand(grad, DT, PRECISION), y, grad1, PRECISION)
    to = (tl.program_id(0) * num_layers + first + layer).to(tl.int64) * LAYER_NUMEL
    inside = (unit < F)[:, None] & (e < E)[None, :]
    tl.store(weight1_ptr + to + unit[:, None] * E + e[None, :], grad1, mask=inside)
    tl.store(weight2_ptr + to + e[None, :] * F + unit[:, None], grad2, mask=inside)
    tl.store(bias1_ptr + to + unit, sum1, mask=unit < F)
    if tl.program_id(2) == 0:
        tl.store(bias2_ptr + to + e, tl.sum(sum2, axis=0), mask=e < E)
