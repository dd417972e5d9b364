# mypy: ignore-errors
"""Gradients of the feed-forward part's weights, and of the LayerNorm before it, as in attention_gradient.py.

Hidden values and their gradients are recomputed, which takes less time than storing and reading them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from .layouts import by_rows, by_rows_narrow, coalesced_matrix, column, left, shared_matrix
from .sums import allocate_tiles, fetch_tile, load_tile, ones, sum_of, sums_by_column
from .tiles import operand, parameter_pointers, relu_to_bfloat16


@gluon.jit
def fetch(n_tiles, du_tiles, normed_ptr, grad_sum_ptr, k, size, E: gl.constexpr, WARPS: gl.constexpr):
    """Start copying the k-th tile of both inputs."""
    fetch_tile(n_tiles, normed_ptr, k, size, E, WARPS)
    fetch_tile(du_tiles, grad_sum_ptr, k, size, E, WARPS)
    async_copy.commit_group()


@gluon.jit
def feed_forward_gradient(
    grad_sum_ptr, saved_ptr, norm1, weight1, bias1, weight2, sums_ptr, begin, size, num_rows, slot, layer,
    E: gl.constexpr, F: gl.constexpr, ROWS: gl.constexpr, STAGES: gl.constexpr, LAYER_NUMEL: gl.constexpr,
):  # fmt: skip
    """Sum the gradients of `size` rows from `begin` for one layer, whose factors are at `slot`."""
    WARPS: gl.constexpr = gl.num_warps()
    LAYOUT: gl.constexpr = by_rows(E, WARPS)
    p = layer * LAYER_NUMEL
    grad_sum_ptr += (slot * num_rows.to(gl.int64) + begin) * E
    saved_ptr += ((2 * layer + 1) * num_rows.to(gl.int64) + begin) * E
    n, du = allocate_tiles(ROWS, E, STAGES), allocate_tiles(ROWS, E, STAGES)
    y = gl.allocate_shared_memory(gl.bfloat16, [ROWS, E], shared_matrix(E))  # the input of the feed-forward part
    for step in gl.static_range(STAGES - 2):
        fetch(n, du, saved_ptr, grad_sum_ptr, step, size, E, WARPS)

    COALESCED: gl.constexpr = coalesced_matrix(E, WARPS)
    unit = gl.arange(0, F, gl.SliceLayout(1, COALESCED))
    e = column(gl.arange(0, E, gl.SliceLayout(0, COALESCED)))
    w1 = gl.allocate_shared_memory(gl.bfloat16, [F, E], shared_matrix(E))
    w2 = gl.allocate_shared_memory(gl.bfloat16, [F, E], shared_matrix(E))
    w1.store(gl.load(weight1 + p + unit[:, None] * E + e[None, :]))
    w2.store(gl.load(weight2 + p + unit[:, None] + e[None, :] * F))
    scale, shift = gl.load(norm1 + p + e)[None, :], gl.load(norm1 + p + E + e)[None, :]
    HIDDEN: gl.constexpr = by_rows(ROWS, WARPS)
    b1 = gl.load(bias1 + p + gl.arange(0, F, gl.SliceLayout(1, HIDDEN)))[:, None].broadcast_to([F, ROWS])

    zeros = gl.zeros([F, ROWS], gl.float32, HIDDEN)
    grad1 = warpgroup_mma_init(gl.zeros([F, E], gl.float32, LAYOUT))
    grad2 = warpgroup_mma_init(gl.zeros([F, E], gl.float32, LAYOUT))
    sum1 = gl.zeros([F, 16], gl.float32, by_rows_narrow(WARPS))
    sum2 = gl.zeros([ROWS, E], gl.float32, COALESCED)
    around = gl.zeros([ROWS, E], gl.float32, COALESCED)
    for step in range((size + ROWS - 1) // ROWS):
        async_copy.wait_group(STAGES - 3)  # the last two products of the preceding step still read one tile
        fetch(n, du, saved_ptr, grad_sum_ptr, step + STAGES - 2, size, E, WARPS)
        at = step % STAGES
        normed, grad_sum = load_tile(n.index(at), WARPS), load_tile(du.index(at), WARPS)
        y.store((normed * scale + shift).to(gl.bfloat16))
        fence_async_shared()
        hidden = warpgroup_mma(w1, y.permute((1, 0)), b1, is_async=True)
        grad = warpgroup_mma(w2, du.index(at).permute((1, 0)), zeros, use_acc=False, is_async=True)
        sum2 += grad_sum
        around += normed * grad_sum
        hidden, grad, grad1, grad2 = warpgroup_mma_wait(0, [hidden, grad, grad1, grad2])
        grad = gl.where(hidden > 0.0, grad, 0.0).to(gl.bfloat16)
        sum1 = mma_v2(gl.convert_layout(grad, left(by_rows_narrow(WARPS))), ones(ROWS, by_rows_narrow(WARPS)), sum1)
        grad1 = warpgroup_mma(operand(grad, E, WARPS), n.index(at), grad1, is_async=True)
        grad2 = warpgroup_mma(operand(relu_to_bfloat16(hidden), E, WARPS), du.index(at), grad2, is_async=True)
    grad1, grad2 = warpgroup_mma_wait(0, [grad1, grad2])
    async_copy.wait_group(0)

    _, _, _, _, norm1_ptr, weight1_ptr, bias1_ptr, weight2_ptr, bias2_ptr, _ = parameter_pointers(
        sums_ptr, sums_ptr, E, F
    )
    e = column(gl.arange(0, E, gl.SliceLayout(0, LAYOUT)))
    unit = gl.arange(0, F, gl.SliceLayout(1, LAYOUT))
    at = unit[:, None] * E + e[None, :]
    bias = gl.convert_layout(sum_of(sum1), gl.SliceLayout(1, LAYOUT))
    scale, shift = gl.load(norm1 + p + e)[None, :], gl.load(norm1 + p + E + e)[None, :]
    gl.store(weight1_ptr + at, grad1 * scale + bias[:, None] * shift)
    gl.store(bias1_ptr + unit, bias)
    gl.store(weight2_ptr + unit[:, None] + e[None, :] * F, grad2)
    bias2 = sums_by_column(sum2, LAYOUT)
    gl.store(bias2_ptr + e, bias2)
    given = gl.load(weight1 + p + at).to(gl.float32)
    gl.store(norm1_ptr + e, gl.sum(given * grad1, axis=0) + sums_by_column(around, LAYOUT))
    gl.store(norm1_ptr + E + e, gl.sum(given * bias[:, None], axis=0) + bias2)
