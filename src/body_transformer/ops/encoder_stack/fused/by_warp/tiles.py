# mypy: ignore-errors
"""What the kernels share: rows in memory, products, weights on their way, LayerNorm, masked scores."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma

from .layouts import (
    by_rows,
    by_samples,
    from_memory,
    in_memory,
    in_order,
    in_pieces,
    in_shared,
    in_turn,
    left,
    right,
    to_memory,
)

LOG2E = gl.constexpr(1.4426950408889634)
LN2 = gl.constexpr(0.6931471805599453)


# -- rows in memory ----------------------------------------------------------------------------------------------------


@gluon.jit
def places(batch, N: gl.constexpr, S: gl.constexpr, LAYOUT: gl.constexpr):
    """[R] the rows of this program's samples in [B * N, …], counted from its first one, and which of them exist."""
    r = gl.arange(0, S * 16, gl.SliceLayout(1, LAYOUT))
    node = r % 16
    return r // 16 * N + node, (gl.program_id(0) * S + r // 16 < batch) & (node < N)


@gluon.jit
def keep(ptr, x, batch, N: gl.constexpr, STRIDE: gl.constexpr, WARPS: gl.constexpr):
    """Stores x [R, C] at this program's rows, which are STRIDE apart, as our own kernels read them."""
    R: gl.constexpr = x.shape[0]
    C: gl.constexpr = x.shape[1]
    LAYOUT: gl.constexpr = in_memory(R, C, WARPS)
    rows, exist = places(batch, N, R // 16, LAYOUT)
    at = rows[:, None] * STRIDE + gl.arange(0, C, gl.SliceLayout(0, LAYOUT))[None, :]
    gl.store(ptr + at, to_memory(x, WARPS), mask=exist[:, None])


@gluon.jit
def kept(ptr, batch, N: gl.constexpr, R: gl.constexpr, C: gl.constexpr, WARPS: gl.constexpr):
    """[R, C] float32: what was stored so."""
    LAYOUT: gl.constexpr = in_memory(R, C, WARPS)
    rows, exist = places(batch, N, R // 16, LAYOUT)
    at = rows[:, None] * C + gl.arange(0, C, gl.SliceLayout(0, LAYOUT))[None, :]
    return from_memory(gl.load(ptr + at, mask=exist[:, None], other=0.0), WARPS).to(gl.float32)


# -- parameters --------------------------------------------------------------------------------------------------------


@gluon.jit
def room_for_attention(H: gl.constexpr, D: gl.constexpr, E: gl.constexpr):
    """Shared memory for what a layer's first part needs: weights of queries, keys and values of every head, of the
    output of every head, and the biases of the former."""
    qkv = gl.allocate_shared_memory(gl.bfloat16, [3 * H, D, E], in_shared(E))
    out = gl.allocate_shared_memory(gl.bfloat16, [H, E, D], in_shared(D))
    return qkv, out, room_for_vector(4 * E)


@gluon.jit
def room_for_feed_forward(E: gl.constexpr, F: gl.constexpr, FC: gl.constexpr):
    """The same for the second part: both weights, FC hidden units in each piece, and the first bias."""
    first = gl.allocate_shared_memory(gl.bfloat16, [F // FC, FC, E], in_shared(E))
    second = gl.allocate_shared_memory(gl.bfloat16, [F // FC, E, FC], in_shared(FC))
    return first, second, room_for_vector(F)


@gluon.jit
def room_for_vector(SIZE: gl.constexpr):
    return gl.allocate_shared_memory(gl.float32, [SIZE], in_order())


@gluon.jit
def fetch_attention(part, in_weight, in_bias, out_weight, WARPS: gl.constexpr):
    """Starts to bring a layer's parameters; `async_copy.wait_group(0)` waits for them."""
    qkv, out, bias = part
    H: gl.constexpr = out.shape[0]
    E: gl.constexpr = out.shape[1]
    D: gl.constexpr = out.shape[2]
    for k in gl.static_range(3 * H):
        _fetch(qkv.index(k), in_weight + k * D * E, E, WARPS)
    for h in gl.static_range(H):
        _fetch(out.index(h), out_weight + h * D, E, WARPS)
    fetch_vector(bias, in_bias, 3 * E, WARPS)


@gluon.jit
def fetch_feed_forward(part, weight1, bias1, weight2, WARPS: gl.constexpr):
    """The same for the feed-forward part."""
    first, second, bias = part
    E: gl.constexpr = second.shape[1]
    FC: gl.constexpr = second.shape[2]
    F: gl.constexpr = second.shape[0] * FC
    for c in gl.static_range(F // FC):
        _fetch(first.index(c), weight1 + c * FC * E, E, WARPS)
        _fetch(second.index(c), weight2 + c * FC, F, WARPS)
    fetch_vector(bias, bias1, F, WARPS)


@gluon.jit
def _fetch(shared, ptr, STRIDE: gl.constexpr, WARPS: gl.constexpr):
    LAYOUT: gl.constexpr = in_pieces(shared.shape[1], WARPS)
    rows = gl.arange(0, shared.shape[0], gl.SliceLayout(1, LAYOUT))
    cols = gl.arange(0, shared.shape[1], gl.SliceLayout(0, LAYOUT))
    async_copy.async_copy_global_to_shared(shared, ptr + rows[:, None] * STRIDE + cols[None, :])


@gluon.jit
def fetch_vector(shared, ptr, SIZE: gl.constexpr, WARPS: gl.constexpr):
    """The first SIZE entries."""
    at = gl.arange(0, shared.shape[0], in_turn(shared.shape[0], WARPS))
    async_copy.async_copy_global_to_shared(shared, ptr + at, mask=at < SIZE)


@gluon.jit
def vector(shared, start, SIZE: gl.constexpr, WARPS: gl.constexpr):
    """[1, SIZE] of a vector in shared memory, from `start` on, which SIZE divides."""
    parts = shared._reinterpret(gl.float32, [shared.shape[0] // SIZE, SIZE], in_order())
    return parts.index(start // SIZE).load(gl.SliceLayout(0, by_rows(SIZE, WARPS)))[None, :]


# -- products ----------------------------------------------------------------------------------------------------------


@gluon.jit
def operand(x, C: gl.constexpr, WARPS: gl.constexpr):
    """[R, K] as the first factor of a product [R, C] with weights"""
    return gl.convert_layout(x.to(gl.bfloat16), left(by_rows(C, WARPS)))


@gluon.jit
def rectified(x):
    """max(x, 0) in bfloat16; NaN stays NaN."""
    return gl.inline_asm_elementwise(
        "cvt.rn.relu.bf16x2.f32 $0, $2, $1;", "=r,r,r", [x], dtype=gl.bfloat16, is_pure=True, pack=2
    )


@gluon.jit
def linear(x, weight, bias, start, WARPS: gl.constexpr):
    """Starts x [R, K] -> [R, C] by a linear layer's weight [C, K] and bias [C], from `start` on, in shared memory."""
    C: gl.constexpr = weight.shape[0]
    acc = vector(bias, start, C, WARPS).broadcast_to([x.shape[0], C])
    return warpgroup_mma(operand(x, C, WARPS), weight.permute((1, 0)), acc, is_async=True)


@gluon.jit
def times(x, weight, WARPS: gl.constexpr):
    """Starts x [R, K] -> [R, C] by weight [K, C], in shared memory."""
    C: gl.constexpr = weight.shape[1]
    acc = gl.zeros([x.shape[0], C], gl.float32, by_rows(C, WARPS))
    return warpgroup_mma(operand(x, C, WARPS), weight, acc, use_acc=False, is_async=True)


@gluon.jit
def add_times(acc, x, weight, WARPS: gl.constexpr):
    """Starts acc [R, C] + x [R, K] weight [K, C], the latter in shared memory."""
    return warpgroup_mma(operand(x, weight.shape[1], WARPS), weight, acc, is_async=True)


@gluon.jit
def within_samples(a, b, WARPS: gl.constexpr):
    """a [S, I, K], b [S, K, J] -> [S, I, J]"""
    LAYOUT: gl.constexpr = by_samples(WARPS)
    a = gl.convert_layout(a, left(LAYOUT))
    b = gl.convert_layout(b, right(LAYOUT))
    return mma_v2(a, b, gl.zeros([a.shape[0], a.shape[1], b.shape[2]], gl.float32, LAYOUT))


# -- LayerNorm, attention ----------------------------------------------------------------------------------------------


@gluon.jit
def normalise(x, eps):
    """[R, E] -> [R, E] with mean 0 and variance 1, and [R] 1 / standard deviation."""
    E: gl.constexpr = x.shape[1]
    centred = x - (gl.sum(x, axis=1) * (1.0 / E))[:, None]
    rstd = gl.rsqrt(gl.sum(centred * centred, axis=1) * (1.0 / E) + eps)
    return centred * rstd[:, None], rstd


@gluon.jit
def load_forbidden(mask_ptr, masked, N: gl.constexpr, WARPS: gl.constexpr):
    """[1, 16, 16] what is added to scores: 0, or -inf where the mask forbids; a node of the padding sees itself."""
    LAYOUT: gl.constexpr = by_samples(WARPS)
    i = gl.arange(0, 16, gl.SliceLayout(0, gl.SliceLayout(2, LAYOUT)))[None, :][:, :, None]
    j = gl.arange(0, 16, gl.SliceLayout(0, gl.SliceLayout(1, LAYOUT)))[None, :][:, None, :]
    inside = (i < N) & (j < N)
    allowed = gl.load(mask_ptr + i * N + j, mask=inside & (masked != 0), other=1).to(gl.int1)
    return gl.where((inside & allowed) | (i == j), 0.0, float("-inf"))


@gluon.jit
def softmax_numerator(scores, forbidden):
    """[S, 16, 16]: 2^(scores - their maximum), 0 where forbidden; and [S, 16, 1] the sum over each row."""
    scores += forbidden
    p = gl.exp2(scores - gl.max(scores, axis=2)[:, :, None])
    return p, gl.sum(p, axis=2)[:, :, None]
