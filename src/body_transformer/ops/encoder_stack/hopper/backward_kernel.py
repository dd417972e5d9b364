# mypy: ignore-errors
"""The backward pass of all layers in one launch, each warp with its own samples as in the forward pass.

Activations are recomputed from the saved normalised values. Weight gradients are sums over all rows; this kernel stores
only their factors.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma_init, warpgroup_mma_wait

from .layouts import by_row, by_rows, by_sample, transpose_blocks, transposed
from .tiles import (
    allocate_attention,
    allocate_feed_forward,
    allocate_vector,
    fetch_attention,
    fetch_feed_forward,
    fetch_vector,
    load_forbidden,
    load_rows,
    parameter_pointers,
    program_rows,
    queries_and_keys,
    sample_product,
    softmax_numerator,
    start_accumulate,
    start_product,
    store_rows,
    vector,
)


@gluon.jit
def norm_backward(grad, normed, rstd, weight):
    """Return the gradient before a LayerNorm [R, E] from the one after it."""
    E: gl.constexpr = grad.shape[1]
    grad = grad * weight
    mean = gl.sum(grad, axis=1) * (rstd * (-1.0 / E))
    along = gl.sum(grad * normed, axis=1) * (rstd * (-1.0 / E))
    return grad * rstd[:, None] + (normed * along[:, None] + mean[:, None])


@gluon.jit
def feed_forward_backward(y, du, part, WARPS: gl.constexpr):
    """Compute the gradient at y from du [R, E], the gradient at the sum before the second LayerNorm.

    It is the sum over the residual path and the feed-forward path.
    """
    first, second, bias = part
    FC: gl.constexpr = second.shape[2]
    dy = warpgroup_mma_init(du)
    du = du.to(gl.bfloat16)
    for c in range(second.shape[0]):
        hidden = start_product(y, first.index(c).permute((1, 0)), WARPS)  # [R, FC], recomputed
        grad = start_product(du, second.index(c), WARPS)  # [R, FC]
        hidden, grad, dy = warpgroup_mma_wait(0, [hidden, grad, dy])
        grad = gl.where(hidden + vector(bias, c * FC, FC, WARPS) > 0.0, grad, 0.0)
        dy = start_accumulate(dy, grad, first.index(c), WARPS)
    return warpgroup_mma_wait(0, [dy])


@gluon.jit
def attention_backward(
    x, du, part, forbidden, scale, mixed_ptr, grad_qkv_ptr, batch, N: gl.constexpr, WARPS: gl.constexpr
):
    """Compute the gradient at x from du [R, E], the gradient at the sum before the first LayerNorm.

    It is the sum over the residual path and the attention path.
    """
    qk, values, out, bias = part
    H: gl.constexpr = out.shape[0]
    E: gl.constexpr = out.shape[1]
    D: gl.constexpr = out.shape[2]
    dx = du
    du = du.to(gl.bfloat16)
    for h in range(H):
        # recompute the head: queries, keys, values and softmax
        product = warpgroup_mma_wait(0, [start_product(x, qk.index(h).permute((1, 0)), WARPS)])
        q, k = queries_and_keys(product, bias, h, scale, WARPS)
        v = start_product(x, values.index(h).permute((1, 0)), WARPS)
        grad = start_product(du, out.index(h), WARPS)  # [R, D], gradient of the head's output
        v, grad = warpgroup_mma_wait(0, [v, grad])
        v += vector(bias, 2 * E + h * D, D, WARPS)
        v, grad = by_sample(v.to(gl.bfloat16), WARPS), by_sample(grad.to(gl.bfloat16), WARPS)
        p, total = softmax_numerator(sample_product(q, transposed(k), WARPS), forbidden)
        p *= 1.0 / total
        rounded = p.to(gl.bfloat16)
        # gradients of values, scores, queries and keys; factors are stored as soon as they are computed
        store_rows(
            mixed_ptr + h * D, by_row(sample_product(rounded, transpose_blocks(v), WARPS), WARPS), batch, N, E, WARPS
        )
        dv = by_row(sample_product(transposed(transpose_blocks(rounded)), transpose_blocks(grad), WARPS), WARPS)
        store_rows(grad_qkv_ptr + 2 * E + h * D, dv, batch, N, 3 * E, WARPS)
        dx = start_accumulate(dx, dv, values.index(h), WARPS)
        dp = sample_product(grad, transposed(v), WARPS)
        ds = (p * (dp - gl.sum(p * dp, axis=2)[:, :, None])).to(gl.bfloat16)
        dq = by_row(sample_product(ds, transpose_blocks(k), WARPS), WARPS) * scale
        store_rows(grad_qkv_ptr + h * D, dq, batch, N, 3 * E, WARPS)
        dx = start_accumulate(dx, dq, qk.index(h).slice(0, D), WARPS)
        dk = by_row(sample_product(transposed(transpose_blocks(ds)), transpose_blocks(q), WARPS), WARPS)
        store_rows(grad_qkv_ptr + E + h * D, dk, batch, N, 3 * E, WARPS)
        dx = warpgroup_mma_wait(0, [start_accumulate(dx, dk, qk.index(h).slice(D, D), WARPS)])
    return dx


@gluon.jit(do_not_specialize=["batch", "first_layer", "count", "num_layers", "masked_layers"])
def backward_kernel(
    # inputs
    grad_out_ptr, saved_ptr, rstd_ptr, flat_ptr, operands_ptr, mask_ptr,
    # outputs
    grad_x_ptr, mixed_ptr, grad_qkv_ptr, grad_sum1_ptr, grad_sum2_ptr, last_norm_ptr,
    # sizes
    batch, first_layer, count, num_layers, masked_layers, scale,
    N: gl.constexpr, S: gl.constexpr, E: gl.constexpr, F: gl.constexpr, FC: gl.constexpr, H: gl.constexpr,
    D: gl.constexpr, LAYER_NUMEL: gl.constexpr,
):  # fmt: skip
    """Backpropagate through layers `first_layer` to `first_layer + count - 1`, last layer first.

    The input is the gradient of their output [B, N, E]. Store the gradient of their input, the factors of the weight
    gradients [count, B * N, width], and this program's part of the last LayerNorm's gradient [programs, 2, E]. The
    gradients of the other LayerNorms are computed with the parts after them.
    """
    WARPS: gl.constexpr = gl.num_warps()
    LAYOUT: gl.constexpr = by_rows(E, WARPS)
    in_weight, in_bias, out_weight, _, norm1, weight1, bias1, weight2, _, norm2 = parameter_pointers(
        flat_ptr, operands_ptr, E, F
    )
    part1, part2 = allocate_attention(H, D, E), allocate_feed_forward(E, F, FC)
    before1, before2 = allocate_vector(2 * E), allocate_vector(2 * E)
    after1, after2 = allocate_vector(2 * E), allocate_vector(2 * E)
    last = (first_layer + count - 1) * LAYER_NUMEL
    fetch_feed_forward(part2, weight1 + last, bias1 + last, weight2 + last, WARPS)
    fetch_vector(before2, norm1 + last, 2 * E, WARPS)
    fetch_vector(after2, norm2 + last, 2 * E, WARPS)
    async_copy.commit_group()
    rows, exist = program_rows(batch, N, S, LAYOUT)
    begin = gl.program_id(0).to(gl.int64) * (S * N)
    num_rows = batch.to(gl.int64) * N
    plane = num_rows * E
    at = begin * E + rows[:, None] * E + gl.arange(0, E, gl.SliceLayout(0, LAYOUT))[None, :]
    grad = gl.load(grad_out_ptr + at, mask=exist[:, None], other=0.0)
    saved_ptr += begin * E
    rstd_ptr += begin
    mixed_ptr += begin * E
    grad_qkv_ptr += begin * (3 * E)
    grad_sum1_ptr += begin * E
    grad_sum2_ptr += begin * E
    if first_layer + count == num_layers:
        normed = load_rows(saved_ptr + 2 * num_layers * plane, batch, N, S * 16, E, WARPS)
        to = last_norm_ptr + gl.program_id(0).to(gl.int64) * (2 * E) + gl.arange(0, E, gl.SliceLayout(0, LAYOUT))
        gl.store(to, gl.sum(grad * normed, axis=0))
        gl.store(to + E, gl.sum(grad, axis=0))
    for step in range(count):
        slot = count - 1 - step  # index among the factors
        layer = first_layer + slot
        p = layer * LAYER_NUMEL
        # the feed-forward part, while attention's weights are copied
        rstd = gl.load(rstd_ptr + (2 * layer + 1) * num_rows + rows, mask=exist, other=0.0)
        normed = load_rows(saved_ptr + (2 * layer + 2) * plane, batch, N, S * 16, E, WARPS)
        y = load_rows(saved_ptr + (2 * layer + 1) * plane, batch, N, S * 16, E, WARPS)
        async_copy.wait_group(0)
        fence_async_shared()
        earlier = gl.maximum(layer - 1, 0) * LAYER_NUMEL
        fetch_attention(part1, in_weight + p, in_bias + p, out_weight + p, WARPS)
        fetch_vector(before1, norm2 + earlier, 2 * E, WARPS)
        fetch_vector(after1, norm1 + p, 2 * E, WARPS)
        async_copy.commit_group()
        du = norm_backward(grad, normed, rstd, vector(after2, 0, E, WARPS))
        store_rows(grad_sum2_ptr + slot * plane, du, batch, N, E, WARPS)
        y = y * vector(before2, 0, E, WARPS) + vector(before2, E, E, WARPS)
        grad = feed_forward_backward(y.to(gl.bfloat16), du, part2, WARPS)

        # attention, while the weights of the preceding layer's feed-forward part are copied
        rstd = gl.load(rstd_ptr + 2 * layer * num_rows + rows, mask=exist, other=0.0)
        normed = load_rows(saved_ptr + (2 * layer + 1) * plane, batch, N, S * 16, E, WARPS)
        x = load_rows(saved_ptr + 2 * layer * plane, batch, N, S * 16, E, WARPS)
        forbidden = load_forbidden(mask_ptr, (masked_layers >> layer) & 1, N, WARPS)
        async_copy.wait_group(0)
        fence_async_shared()
        fetch_feed_forward(part2, weight1 + earlier, bias1 + earlier, weight2 + earlier, WARPS)
        fetch_vector(before2, norm1 + earlier, 2 * E, WARPS)
        fetch_vector(after2, norm2 + earlier, 2 * E, WARPS)
        async_copy.commit_group()
        if layer > 0:
            x = x * vector(before1, 0, E, WARPS) + vector(before1, E, E, WARPS)
        du = norm_backward(grad, normed, rstd, vector(after1, 0, E, WARPS))
        store_rows(grad_sum1_ptr + slot * plane, du, batch, N, E, WARPS)
        grad = attention_backward(
            x.to(gl.bfloat16), du, part1, forbidden, scale,
            mixed_ptr + slot * plane, grad_qkv_ptr + slot * 3 * plane, batch, N, WARPS,
        )  # fmt: skip
    gl.store(grad_x_ptr + at, grad, mask=exist[:, None])
    async_copy.wait_group(0)  # the last layer has started a copy too
