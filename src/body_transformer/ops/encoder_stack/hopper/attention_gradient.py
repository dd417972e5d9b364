# mypy: ignore-errors
"""Gradients of attention's weights, and of the LayerNorm before it: sums over all rows, for many layers at once.

The input of attention is n w + b, with the normalised values n and the weight w and bias b of the preceding LayerNorm.
Let G be the sum of grad^T n over all rows, and g the sum of grad. Then the gradient of attention's weight W is
G w + g b. The gradient of w is the sum of W G over outputs, and that of b the sum of W g, both plus the residual path.
So the rows are read only once.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from .layouts import by_columns, coalesced_matrix, column
from .sums import allocate_tiles, fetch_tile, load_tile, sums_by_column, sums_by_row
from .tiles import parameter_pointers


@gluon.jit
def fetch(tiles, grad_qkv_ptr, normed_ptr, mixed_ptr, grad_sum_ptr, k, size, E: gl.constexpr, WARPS: gl.constexpr):
    """Start copying the k-th tile of all inputs."""
    for third in gl.static_range(3):
        fetch_tile(tiles[third], grad_qkv_ptr + third * E, k, size, 3 * E, WARPS)
    fetch_tile(tiles[3], normed_ptr, k, size, E, WARPS)
    fetch_tile(tiles[4], mixed_ptr, k, size, E, WARPS)
    fetch_tile(tiles[5], grad_sum_ptr, k, size, E, WARPS)
    async_copy.commit_group()


@gluon.jit
def over_rows(a, b, acc):
    """Start the product acc [A, C] + a^T b of tiles a [ROWS, A] and b [ROWS, C]."""
    return warpgroup_mma(a.permute((1, 0)), b, acc, is_async=True)


@gluon.jit
def store_input_gradient(
    weight, bias, FIRST: gl.constexpr, scale, shift, in_weight, weight_ptr, bias_ptr, LAYOUT: gl.constexpr
):
    """Store E rows of the gradient from row FIRST; return their part of the LayerNorm's gradients, [E] each."""
    E: gl.constexpr = weight.shape[0]
    f = FIRST + column(gl.arange(0, E, gl.SliceLayout(1, LAYOUT)))
    e = column(gl.arange(0, E, gl.SliceLayout(0, LAYOUT)))
    at = f[:, None] * E + e[None, :]
    gl.store(weight_ptr + at, weight * scale[None, :] + bias[:, None] * shift[None, :])
    gl.store(bias_ptr + f, bias)
    given = gl.load(in_weight + at).to(gl.float32)
    return gl.sum(given * weight, axis=0), gl.sum(given * bias[:, None], axis=0)


@gluon.jit
def attention_gradient(
    grad_qkv_ptr, mixed_ptr, grad_sum_ptr, saved_ptr, in_weight, norm2, sums_ptr, begin, size, num_rows, slot, layer,
    E: gl.constexpr, F: gl.constexpr, ROWS: gl.constexpr, STAGES: gl.constexpr, LAYER_NUMEL: gl.constexpr,
):  # fmt: skip
    """Sum the gradients of `size` rows from `begin` for one layer, whose factors are at `slot`."""
    WARPS: gl.constexpr = gl.num_warps()
    LAYOUT: gl.constexpr = by_columns(E, WARPS)
    row = slot * num_rows.to(gl.int64) + begin
    grad_qkv_ptr += row * (3 * E)
    mixed_ptr += row * E
    grad_sum_ptr += row * E
    saved_ptr += (2 * layer * num_rows.to(gl.int64) + begin) * E
    q, k, v = allocate_tiles(ROWS, E, STAGES), allocate_tiles(ROWS, E, STAGES), allocate_tiles(ROWS, E, STAGES)
    n, mixed, du = allocate_tiles(ROWS, E, STAGES), allocate_tiles(ROWS, E, STAGES), allocate_tiles(ROWS, E, STAGES)
    tiles = (q, k, v, n, mixed, du)
    for step in gl.static_range(STAGES - 1):
        fetch(tiles, grad_qkv_ptr, saved_ptr, mixed_ptr, grad_sum_ptr, step, size, E, WARPS)

    grad_q = warpgroup_mma_init(gl.zeros([E, E], gl.float32, LAYOUT))
    grad_k, grad_v, grad_out = grad_q, grad_q, grad_q
    sum_q = gl.zeros([ROWS, E], gl.float32, coalesced_matrix(E, WARPS))
    sum_v, sum_out, around = sum_q, sum_q, sum_q
    for step in range((size + ROWS - 1) // ROWS):
        grad_q, grad_k, grad_v, grad_out = warpgroup_mma_wait(0, [grad_q, grad_k, grad_v, grad_out])
        # This wait comes after the one for the products, because it synchronises all warps. The next copy overwrites
        # tiles that the products of any warp have read.
        async_copy.wait_group(STAGES - 2)
        fetch(tiles, grad_qkv_ptr, saved_ptr, mixed_ptr, grad_sum_ptr, step + STAGES - 1, size, E, WARPS)
        fence_async_shared()
        at = step % STAGES
        grad_q = over_rows(q.index(at), n.index(at), grad_q)
        grad_k = over_rows(k.index(at), n.index(at), grad_k)
        grad_v = over_rows(v.index(at), n.index(at), grad_v)
        grad_out = over_rows(du.index(at), mixed.index(at), grad_out)
        grad = load_tile(du.index(at), WARPS)
        sum_q, sum_v = sum_q + load_tile(q.index(at), WARPS), sum_v + load_tile(v.index(at), WARPS)
        sum_out, around = sum_out + grad, around + load_tile(n.index(at), WARPS) * grad
    grad_q, grad_k, grad_v, grad_out = warpgroup_mma_wait(0, [grad_q, grad_k, grad_v, grad_out])
    async_copy.wait_group(0)

    in_weight_ptr, in_bias_ptr, out_weight_ptr, out_bias_ptr, _, _, _, _, _, norm2_ptr = parameter_pointers(
        sums_ptr, sums_ptr, E, F
    )
    e = column(gl.arange(0, E, gl.SliceLayout(0, LAYOUT)))
    before = norm2 + gl.maximum(layer - 1, 0) * LAYER_NUMEL
    scale = gl.where(layer > 0, gl.load(before + e), 1.0)  # the first layer's input is not the output of a LayerNorm
    shift = gl.where(layer > 0, gl.load(before + E + e), 0.0)
    in_weight += layer * LAYER_NUMEL
    bias = sums_by_row(sum_q, LAYOUT)
    norm_w, norm_b = store_input_gradient(grad_q, bias, 0, scale, shift, in_weight, in_weight_ptr, in_bias_ptr, LAYOUT)
    bias = gl.zeros_like(bias)  # a key's bias adds the same to all scores of a query, so its gradient is 0
    more_w, more_b = store_input_gradient(grad_k, bias, E, scale, shift, in_weight, in_weight_ptr, in_bias_ptr, LAYOUT)
    bias = sums_by_row(sum_v, LAYOUT)
    last_w, last_b = store_input_gradient(
        grad_v, bias, 2 * E, scale, shift, in_weight, in_weight_ptr, in_bias_ptr, LAYOUT
    )
    f = column(gl.arange(0, E, gl.SliceLayout(1, LAYOUT)))
    gl.store(out_weight_ptr + f[:, None] * E + e[None, :], grad_out)
    bias = sums_by_column(sum_out, LAYOUT)
    gl.store(out_bias_ptr + e, bias)
    if layer > 0:
        norm2_ptr -= LAYER_NUMEL  # the preceding layer
        gl.store(norm2_ptr + e, norm_w + more_w + last_w + sums_by_column(around, LAYOUT))
        gl.store(norm2_ptr + E + e, norm_b + more_b + last_b + bias)
