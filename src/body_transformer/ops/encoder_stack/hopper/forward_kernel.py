# mypy: ignore-errors
"""The forward pass of all layers in one launch: a warp keeps its samples in registers and needs no other warp's values.

Shared memory holds the weights of a layer's two parts; while one part computes, the weights of the other are copied.
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
    normalise,
    parameter_pointers,
    program_rows,
    queries_and_keys,
    relu_to_bfloat16,
    sample_product,
    softmax_numerator,
    start_accumulate,
    start_product,
    store_rows,
    vector,
)


@gluon.jit
def attention(x, acc, part, forbidden, scale, WARPS: gl.constexpr):
    """Return acc [R, E] + masked multi-head attention of x [R, E] bfloat16, without the last bias."""
    qk, values, out, bias = part
    H: gl.constexpr = out.shape[0]
    E: gl.constexpr = out.shape[1]
    D: gl.constexpr = out.shape[2]
    acc = warpgroup_mma_init(acc)
    for h in range(H):
        product = start_product(x, qk.index(h).permute((1, 0)), WARPS)  # [R, 2 D]: queries and keys in one product
        product, acc = warpgroup_mma_wait(0, [product, acc])  # acc: the output projection of the preceding head
        q, k = queries_and_keys(product, bias, h, scale, WARPS)
        v = start_product(x, values.index(h).permute((1, 0)), WARPS)  # [R, D], computed during the softmax
        p, total = softmax_numerator(sample_product(q, transposed(k), WARPS), forbidden)
        v = warpgroup_mma_wait(0, [v]) + vector(bias, 2 * E + h * D, D, WARPS)
        v = by_sample(v.to(gl.bfloat16), WARPS)
        mixed = by_row(sample_product(p.to(gl.bfloat16), transpose_blocks(v), WARPS) * (1.0 / total), WARPS)
        acc = start_accumulate(acc, mixed, out.index(h).permute((1, 0)), WARPS)  # waited for in the next iteration
    return warpgroup_mma_wait(0, [acc])


@gluon.jit
def feed_forward(y, acc, part, WARPS: gl.constexpr):
    """Return acc [R, E] + two linear layers with a ReLU between of y [R, E] bfloat16, without the last bias."""
    first, second, bias = part
    FC: gl.constexpr = second.shape[2]
    acc = warpgroup_mma_init(acc)
    for c in range(second.shape[0]):
        hidden = start_product(y, first.index(c).permute((1, 0)), WARPS)  # [R, FC]
        hidden, acc = warpgroup_mma_wait(0, [hidden, acc])
        hidden = relu_to_bfloat16(hidden + vector(bias, c * FC, FC, WARPS))
        acc = start_accumulate(acc, hidden, second.index(c).permute((1, 0)), WARPS)  # waited for in the next iteration
    return warpgroup_mma_wait(0, [acc])


@gluon.jit(do_not_specialize=["batch", "num_layers", "masked_layers"])
def forward_kernel(
    # inputs
    x_ptr, flat_ptr, operands_ptr, mask_ptr,
    # outputs
    out_ptr, saved_ptr, rstd_ptr,
    # sizes
    batch, num_layers, masked_layers, scale, eps,
    N: gl.constexpr, S: gl.constexpr, E: gl.constexpr, F: gl.constexpr, FC: gl.constexpr, H: gl.constexpr,
    D: gl.constexpr, LAYER_NUMEL: gl.constexpr, SAVE: gl.constexpr,
):  # fmt: skip
    """Compute x [B, N, E] -> out [B, N, E]; bit l of `masked_layers` is set if layer l is masked.

    With SAVE, store tensors for the backward pass: x with the normalised values [1 + 2L, B * N, E], and 1 / standard
    deviations [2L, B * N].
    """
    WARPS: gl.constexpr = gl.num_warps()
    LAYOUT: gl.constexpr = by_rows(E, WARPS)
    in_weight, in_bias, out_weight, out_bias, norm1, weight1, bias1, weight2, bias2, norm2 = parameter_pointers(
        flat_ptr, operands_ptr, E, F
    )
    part1, part2 = allocate_attention(H, D, E), allocate_feed_forward(E, F, FC)
    last_bias1, last_bias2 = allocate_vector(E), allocate_vector(E)
    after1, after2 = allocate_vector(2 * E), allocate_vector(2 * E)
    # start copying the first attention's weights; the feed-forward part's follow while attention computes
    fetch_attention(part1, in_weight, in_bias, out_weight, WARPS)
    fetch_vector(last_bias1, out_bias, E, WARPS)
    fetch_vector(after1, norm1, 2 * E, WARPS)
    async_copy.commit_group()
    rows, exist = program_rows(batch, N, S, LAYOUT)
    begin = gl.program_id(0).to(gl.int64) * (S * N)
    num_rows = batch.to(gl.int64) * N
    at = begin * E + rows[:, None] * E + gl.arange(0, E, gl.SliceLayout(0, LAYOUT))[None, :]
    x = gl.load(x_ptr + at, mask=exist[:, None], other=0.0)
    if SAVE:
        saved_ptr += begin * E
        rstd_ptr += begin
        store_rows(saved_ptr, x, batch, N, E, WARPS)
    for layer in range(num_layers):
        p = layer * LAYER_NUMEL  # start of this layer's parameters
        # attention, while the weights of the feed-forward part are copied
        forbidden = load_forbidden(mask_ptr, (masked_layers >> layer) & 1, N, WARPS)
        async_copy.wait_group(0)
        fence_async_shared()
        fetch_feed_forward(part2, weight1 + p, bias1 + p, weight2 + p, WARPS)
        fetch_vector(last_bias2, bias2 + p, E, WARPS)
        fetch_vector(after2, norm2 + p, 2 * E, WARPS)
        async_copy.commit_group()
        u = x + vector(last_bias1, 0, E, WARPS)
        x, rstd = normalise(attention(x.to(gl.bfloat16), u, part1, forbidden, scale, WARPS), eps)
        if SAVE:
            store_rows(saved_ptr + (2 * layer + 1) * num_rows * E, x, batch, N, E, WARPS)
            gl.store(rstd_ptr + 2 * layer * num_rows + rows, rstd, mask=exist)
        x = x * vector(after1, 0, E, WARPS) + vector(after1, E, E, WARPS)
        # the feed-forward part, while the next attention's weights are copied (the last layer copies its own again)
        async_copy.wait_group(0)
        fence_async_shared()
        after = gl.minimum(layer + 1, num_layers - 1) * LAYER_NUMEL
        fetch_attention(part1, in_weight + after, in_bias + after, out_weight + after, WARPS)
        fetch_vector(last_bias1, out_bias + after, E, WARPS)
        fetch_vector(after1, norm1 + after, 2 * E, WARPS)
        async_copy.commit_group()
        u = x + vector(last_bias2, 0, E, WARPS)
        x, rstd = normalise(feed_forward(x.to(gl.bfloat16), u, part2, WARPS), eps)
        if SAVE:
            store_rows(saved_ptr + (2 * layer + 2) * num_rows * E, x, batch, N, E, WARPS)
            gl.store(rstd_ptr + (2 * layer + 1) * num_rows + rows, rstd, mask=exist)
        x = x * vector(after2, 0, E, WARPS) + vector(after2, E, E, WARPS)
    gl.store(out_ptr + at, x, mask=exist[:, None])
    async_copy.wait_group(0)  # the last layer has started a copy too
