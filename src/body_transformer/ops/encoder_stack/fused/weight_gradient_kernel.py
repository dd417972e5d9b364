# mypy: ignore-errors
"""Weight gradients of linear layers: sums over all rows of products of two factors, for many encoder layers at once."""

import triton
import triton.language as tl

from .tiles import dot, fence, operand, share_of_rows


@triton.jit(do_not_specialize=["num_rows", "rows_each", "first", "num_layers"])
def weight_gradient_kernel(
    # inputs: the gradient at the layer's output [L, M, A]; its input [L, M, C], or that input before `norm`
    grad_ptr, input_ptr, norm_ptr,
    # outputs: a weight [A, C] and a bias [A] within [shares, L, LAYER]
    weight_ptr, bias_ptr,
    # sizes
    num_rows, rows_each, grad_stride, input_stride, first, num_layers,
    A: tl.constexpr, C: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr, ROWS: tl.constexpr,
    LAYER: tl.constexpr, AFTER: tl.constexpr, STAGES: tl.constexpr, FENCE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """grad^T input and grad^T 1 over this program's share of the rows, for the layers from `first` on.

    AFTER: the input is `input * norm weight + norm bias` of the layer before; by linearity, the sums are treated so.
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
    BY_PRODUCT: tl.constexpr = PRECISION == "bf16"  # bfloat16 times one is exact; of float32 bits would be cut off
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
        norm = norm_ptr + (first + layer - 1) * LAYER + c
        weight *= tl.load(norm, mask=c < C, other=1.0)[None, :]
        weight += bias[:, None] * tl.load(norm + C, mask=c < C, other=0.0)[None, :]
    to = (tl.program_id(0) * num_layers + first + layer).to(tl.int64) * LAYER
    inside = (a < A)[:, None] & (c < C)[None, :]
    tl.store(weight_ptr + to + a[:, None] * C + c[None, :], weight, mask=inside)
    if tl.program_id(2) % num_blocks == 0:
        tl.store(bias_ptr + to + a, bias, mask=a < A)
