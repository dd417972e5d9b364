# mypy: ignore-errors
"""The gradients of all weights, sums over all rows, for many layers in one launch.

Attention's take the GPU's memory longest, those of the feed-forward part its matrix units. So neither is waited for:
some of the multiprocessors are for the former, the others at the same time for the latter.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .attention_gradient import attention_gradient
from .feed_forward_gradient import feed_forward_gradient
from .sums import share_of_rows
from .tiles import parts_of


@gluon.jit(do_not_specialize=["num_rows", "attention_shares", "attention_rows", "ff_rows", "first", "num_layers"])
def weight_gradient_kernel(
    # inputs: factors [count, M, width] of the layers from `first` on; of all layers the saved values and parameters
    mixed_ptr, grad_qkv_ptr, grad_sum1_ptr, grad_sum2_ptr, saved_ptr, flat_ptr, operands_ptr,
    # output [shares, L, LAYER]
    sums_ptr,
    # sizes
    num_rows, attention_shares, attention_rows, ff_rows, first, num_layers,
    E: gl.constexpr, F: gl.constexpr, LAYER: gl.constexpr, ATTENTION_ROWS: gl.constexpr,
    ATTENTION_STAGES: gl.constexpr, FF_ROWS: gl.constexpr, FF_STAGES: gl.constexpr,
):  # fmt: skip
    """For layer `first` + its second index: what a share of the rows gives, attention's in the first
    `attention_shares` programs, `attention_rows` rows in each, the feed-forward part's in the others."""
    slot = gl.program_id(1)
    layer = first + slot
    share = gl.program_id(0)
    in_weight, _, _, _, norm1, weight1, bias1, weight2, _, norm2 = parts_of(flat_ptr, operands_ptr, E, F)
    if share < attention_shares:
        begin, size = share_of_rows(share, num_rows, attention_rows)
        sums_ptr += (share * num_layers + layer).to(gl.int64) * LAYER
        attention_gradient(
            grad_qkv_ptr, mixed_ptr, grad_sum1_ptr, saved_ptr, in_weight, norm2, sums_ptr,
            begin, size, num_rows, slot, layer, E, F, ATTENTION_ROWS, ATTENTION_STAGES, LAYER,
        )  # fmt: skip
    else:
        share -= attention_shares
        begin, size = share_of_rows(share, num_rows, ff_rows)
        sums_ptr += (share * num_layers + layer).to(gl.int64) * LAYER
        feed_forward_gradient(
            grad_sum2_ptr, saved_ptr, norm1, weight1, bias1, weight2, sums_ptr,
            begin, size, num_rows, slot, layer, E, F, FF_ROWS, FF_STAGES, LAYER,
        )  # fmt: skip
