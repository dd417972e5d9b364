# mypy: ignore-errors
"""The gradients of all parameters: sums over shares of the rows in one launch, their totals in a second.

In the first launch, attention's sums are limited by memory bandwidth and those of the feed-forward part by the matrix
units. So some multiprocessors work on the former while the others work on the latter.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .attention_gradient import attention_gradient
from .feed_forward_gradient import feed_forward_gradient
from .layouts import coalesced_vector, in_columns
from .sums import share_of_rows
from .tiles import parameter_pointers


@gluon.jit(do_not_specialize=["num_rows", "attention_shares", "attention_rows", "ff_rows", "first", "num_layers"])
def weight_gradient_kernel(
    # inputs: factors [count, M, width] of the layers from `first` on; saved values and parameters of all layers
    mixed_ptr, grad_qkv_ptr, grad_sum1_ptr, grad_sum2_ptr, saved_ptr, flat_ptr, operands_ptr,
    # output [shares, L, LAYER_NUMEL]
    sums_ptr,
    # sizes
    num_rows, attention_shares, attention_rows, ff_rows, first, num_layers,
    E: gl.constexpr, F: gl.constexpr, LAYER_NUMEL: gl.constexpr, ATTENTION_ROWS: gl.constexpr,
    ATTENTION_STAGES: gl.constexpr, FF_ROWS: gl.constexpr, FF_STAGES: gl.constexpr,
):  # fmt: skip
    """Sum the gradients of one share of the rows, for layer `first` + the second program index.

    The first `attention_shares` programs work on attention, with `attention_rows` rows each, the others on the
    feed-forward part.
    """
    slot = gl.program_id(1)
    layer = first + slot
    share = gl.program_id(0)
    in_weight, _, _, _, norm1, weight1, bias1, weight2, _, norm2 = parameter_pointers(flat_ptr, operands_ptr, E, F)
    if share < attention_shares:
        begin, size = share_of_rows(share, num_rows, attention_rows)
        sums_ptr += (share * num_layers + layer).to(gl.int64) * LAYER_NUMEL
        attention_gradient(
            grad_qkv_ptr, mixed_ptr, grad_sum1_ptr, saved_ptr, in_weight, norm2, sums_ptr,
            begin, size, num_rows, slot, layer, E, F, ATTENTION_ROWS, ATTENTION_STAGES, LAYER_NUMEL,
        )  # fmt: skip
    else:
        share -= attention_shares
        begin, size = share_of_rows(share, num_rows, ff_rows)
        sums_ptr += (share * num_layers + layer).to(gl.int64) * LAYER_NUMEL
        feed_forward_gradient(
            grad_sum2_ptr, saved_ptr, norm1, weight1, bias1, weight2, sums_ptr,
            begin, size, num_rows, slot, layer, E, F, FF_ROWS, FF_STAGES, LAYER_NUMEL,
        )  # fmt: skip


@gluon.jit
def total_of_last_norm(
    norms_ptr, total_ptr, first, num_norms, WIDTH: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr
):
    """Sum COLUMNS columns from `first` of the rows [num_norms, WIDTH]."""
    LAYOUT: gl.constexpr = in_columns(COLUMNS, gl.num_warps())
    row = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
    at = first + gl.arange(0, COLUMNS, gl.SliceLayout(0, LAYOUT))
    total = gl.zeros([ROWS, COLUMNS], gl.float32, LAYOUT)
    for start in range(0, num_norms, ROWS):
        there = (start + row < num_norms)[:, None]
        total += gl.load(norms_ptr + (start + row)[:, None] * WIDTH + at[None, :], mask=there, other=0.0)
    gl.store(total_ptr + at, gl.sum(total, axis=0))


@gluon.jit(do_not_specialize=["size", "attention_shares", "ff_shares", "num_norms"])
def total_kernel(
    # inputs [shares, L * LAYER_NUMEL], [programs of the backward pass, 2 E]
    sums_ptr, norms_ptr,
    # output [L * LAYER_NUMEL]
    total_ptr,
    # sizes
    size, attention_shares, ff_shares, num_norms,
    LAYER_NUMEL: gl.constexpr, NORM1: gl.constexpr, NORM2: gl.constexpr, BLOCK: gl.constexpr, ROWS: gl.constexpr,
    COLUMNS: gl.constexpr,
):  # fmt: skip
    """Add up the shares of all parameters.

    In each layer, the parameters from NORM1 up to NORM2 have as many shares as the feed-forward part's sums. The others
    have as many as attention's. The last LayerNorm is followed by no part and is in none of these sums. The first
    programs add up its gradient, COLUMNS columns each.
    """
    WIDTH: gl.constexpr = LAYER_NUMEL - NORM2
    program = gl.program_id(0)
    if program < WIDTH // COLUMNS:
        first = program * COLUMNS
        total_of_last_norm(norms_ptr, total_ptr + size - WIDTH, first, num_norms, WIDTH, ROWS, COLUMNS)
    else:
        at = (program - WIDTH // COLUMNS) * BLOCK + gl.arange(0, BLOCK, coalesced_vector(BLOCK, gl.num_warps()))
        place = at % LAYER_NUMEL
        shares = gl.where((place >= NORM1) & (place < NORM2), ff_shares, attention_shares)
        total = gl.zeros([BLOCK], gl.float32, coalesced_vector(BLOCK, gl.num_warps()))
        for share in range(gl.maximum(attention_shares, ff_shares)):
            total += gl.load(sums_ptr + at, mask=(share < shares) & (at < size - WIDTH), other=0.0)
            sums_ptr += size
        gl.store(total_ptr + at, total, mask=at < size - WIDTH)
