# mypy: ignore-errors
"""Functions that the kernels share: rows in memory, weight prefetching, products, LayerNorm, masked scores."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma

from ...triton_common import LOG2E
from .layouts import (
    by_rows,
    by_sample,
    by_samples,
    coalesced_matrix,
    coalesced_vector,
    from_memory,
    in_memory,
    left,
    right,
    shared_matrix,
    shared_vector,
    to_memory,
)

# -- rows in memory ----------------------------------------------------------------------------------------------------


@gluon.jit
def program_rows(batch, N: gl.constexpr, S: gl.constexpr, LAYOUT: gl.constexpr):
    """Return the rows [R] of this program's samples in [B * N, ...], from its first one, and which of them exist."""
    r = gl.arange(0, S * 16, gl.SliceLayout(1, LAYOUT))
    node = r % 16
    return r // 16 * N + node, (gl.program_id(0) * S + r // 16 < batch) & (node < N)


@gluon.jit
def store_rows(ptr, x, batch, N: gl.constexpr, STRIDE: gl.constexpr, WARPS: gl.constexpr):
    """Store x [R, C] at this program's rows, which are STRIDE apart, in the column order of these kernels."""
    R: gl.constexpr = x.shape[0]
    C: gl.constexpr = x.shape[1]
    LAYOUT: gl.constexpr = in_memory(R, C, WARPS)
    rows, exist = program_rows(batch, N, R // 16, LAYOUT)
    at = rows[:, None] * STRIDE + gl.arange(0, C, gl.SliceLayout(0, LAYOUT))[None, :]
    gl.store(ptr + at, to_memory(x, WARPS), mask=exist[:, None])


@gluon.jit
def load_rows(ptr, batch, N: gl.constexpr, R: gl.constexpr, C: gl.constexpr, WARPS: gl.constexpr):
    """Load rows that `store_rows` stored, as [R, C] float32."""
    LAYOUT: gl.constexpr = in_memory(R, C, WARPS)
    rows, exist = program_rows(batch, N, R // 16, LAYOUT)
    at = rows[:, None] * C + gl.arange(0, C, gl.SliceLayout(0, LAYOUT))[None, :]
    return from_memory(gl.load(ptr + at, mask=exist[:, None], other=0.0), WARPS)


# -- parameters --------------------------------------------------------------------------------------------------------


@gluon.jit
def parameter_pointers(flat_ptr, operands_ptr, E: gl.constexpr, F: gl.constexpr):
    """Return where the first layer's parameters start, as in `EncoderSizes.starts`.

    Matrices are among the operands, vectors in float32. Deriving all pointers from two leaves more registers free.
    """
    in_bias = flat_ptr + 3 * E * E
    out_weight = operands_ptr + 3 * E * (E + 1)
    out_bias = in_bias + E * (E + 3)
    norm1 = out_bias + E
    weight1 = out_weight + E * (E + 3)
    bias1 = norm1 + E * (F + 2)
    weight2 = weight1 + F * (E + 1)
    bias2 = bias1 + F * (E + 1)
    return operands_ptr, in_bias, out_weight, out_bias, norm1, weight1, bias1, weight2, bias2, bias2 + E


@gluon.jit
def allocate_attention(H: gl.constexpr, D: gl.constexpr, E: gl.constexpr):
    """Allocate shared memory for a layer's attention.

    It holds the weights of queries and keys per head, of values and of the output projection, and all biases but the
    last.
    """
    qk = gl.allocate_shared_memory(gl.bfloat16, [H, 2 * D, E], shared_matrix(E))
    v = gl.allocate_shared_memory(gl.bfloat16, [H, D, E], shared_matrix(E))
    out = gl.allocate_shared_memory(gl.bfloat16, [H, E, D], shared_matrix(D))
    return qk, v, out, allocate_vector(4 * E)


@gluon.jit
def allocate_feed_forward(E: gl.constexpr, F: gl.constexpr, FC: gl.constexpr):
    """Allocate shared memory for the feed-forward part: weights in pieces of FC hidden units, and the first bias."""
    first = gl.allocate_shared_memory(gl.bfloat16, [F // FC, FC, E], shared_matrix(E))
    second = gl.allocate_shared_memory(gl.bfloat16, [F // FC, E, FC], shared_matrix(FC))
    return first, second, allocate_vector(F)


@gluon.jit
def allocate_vector(SIZE: gl.constexpr):
    """Allocate shared memory for a float32 vector."""
    return gl.allocate_shared_memory(gl.float32, [SIZE], shared_vector())


@gluon.jit
def fetch_attention(part, in_weight, in_bias, out_weight, WARPS: gl.constexpr):
    """Start copying a layer's attention parameters; `async_copy.wait_group(0)` waits for them."""
    qk, v, out, bias = part
    H: gl.constexpr = out.shape[0]
    E: gl.constexpr = out.shape[1]
    D: gl.constexpr = out.shape[2]
    r = gl.arange(0, 2 * E, gl.SliceLayout(1, coalesced_matrix(E, WARPS)))
    # a head's queries, then its keys; in global memory all queries come first
    rows = r // D % 2 * E + r // (2 * D) * D + r % D
    _fetch_rows(_at_once(qk), in_weight, rows, E, WARPS)
    _fetch(_at_once(v), in_weight + 2 * E * E, E, WARPS)
    for h in gl.static_range(H):
        _fetch(out.index(h), out_weight + h * D, E, WARPS)
    fetch_vector(bias, in_bias, 3 * E, WARPS)


@gluon.jit
def fetch_feed_forward(part, weight1, bias1, weight2, WARPS: gl.constexpr):
    """Start copying a layer's feed-forward parameters."""
    first, second, bias = part
    E: gl.constexpr = second.shape[1]
    FC: gl.constexpr = second.shape[2]
    F: gl.constexpr = second.shape[0] * FC
    _fetch(_at_once(first), weight1, E, WARPS)
    for c in gl.static_range(F // FC):
        _fetch(second.index(c), weight2 + c * FC, F, WARPS)
    fetch_vector(bias, bias1, F, WARPS)


@gluon.jit
def _at_once(pieces):
    """View [K, R, C] as [K * R, C] for one copy; with one per piece, all warps would synchronise after each."""
    ROWS: gl.constexpr = pieces.shape[0] * pieces.shape[1]
    return pieces._reinterpret(gl.bfloat16, [ROWS, pieces.shape[2]], shared_matrix(pieces.shape[2]))


@gluon.jit
def _fetch(shared, ptr, STRIDE: gl.constexpr, WARPS: gl.constexpr):
    rows = gl.arange(0, shared.shape[0], gl.SliceLayout(1, coalesced_matrix(shared.shape[1], WARPS)))
    _fetch_rows(shared, ptr, rows, STRIDE, WARPS)


@gluon.jit
def _fetch_rows(shared, ptr, rows, STRIDE: gl.constexpr, WARPS: gl.constexpr):
    cols = gl.arange(0, shared.shape[1], gl.SliceLayout(0, coalesced_matrix(shared.shape[1], WARPS)))
    async_copy.async_copy_global_to_shared(shared, ptr + rows[:, None] * STRIDE + cols[None, :])


@gluon.jit
def fetch_vector(shared, ptr, SIZE: gl.constexpr, WARPS: gl.constexpr):
    """Start copying the first SIZE entries of a vector."""
    at = gl.arange(0, shared.shape[0], coalesced_vector(shared.shape[0], WARPS))
    async_copy.async_copy_global_to_shared(shared, ptr + at, mask=at < SIZE)


@gluon.jit
def vector(shared, start, SIZE: gl.constexpr, WARPS: gl.constexpr):
    """Load [1, SIZE] of a vector in shared memory from `start`, a multiple of SIZE."""
    parts = shared._reinterpret(gl.float32, [shared.shape[0] // SIZE, SIZE], shared_vector())
    return parts.index(start // SIZE).load(gl.SliceLayout(0, by_rows(SIZE, WARPS)))[None, :]


# -- products ----------------------------------------------------------------------------------------------------------


@gluon.jit
def operand(x, C: gl.constexpr, WARPS: gl.constexpr):
    """Convert [R, K] to the first factor of a product [R, C] with weights."""
    return gl.convert_layout(x.to(gl.bfloat16), left(by_rows(C, WARPS)))


@gluon.jit
def relu_to_bfloat16(x):
    """Return max(x, 0) in bfloat16; NaN stays NaN."""
    return gl.inline_asm_elementwise(
        "cvt.rn.relu.bf16x2.f32 $0, $2, $1;", "=r,r,r", [x], dtype=gl.bfloat16, is_pure=True, pack=2
    )


@gluon.jit
def start_product(x, weight, WARPS: gl.constexpr):
    """Start the product of x [R, K] with weight [K, C] in shared memory.

    The caller adds a bias to the finished product. A product that starts from a bias would wait for the preceding one.
    """
    C: gl.constexpr = weight.shape[1]
    acc = gl.zeros([x.shape[0], C], gl.float32, by_rows(C, WARPS))
    return warpgroup_mma(operand(x, C, WARPS), weight, acc, use_acc=False, is_async=True)


@gluon.jit
def start_accumulate(acc, x, weight, WARPS: gl.constexpr):
    """Start the product acc [R, C] + x [R, K] weight [K, C], with the weight in shared memory."""
    return warpgroup_mma(operand(x, weight.shape[1], WARPS), weight, acc, is_async=True)


@gluon.jit
def sample_product(a, b, WARPS: gl.constexpr):
    """Multiply within samples, a [S, I, K], b [S, K, J] -> [S, I, J]."""
    LAYOUT: gl.constexpr = by_samples(WARPS)
    a = gl.convert_layout(a, left(LAYOUT))
    b = gl.convert_layout(b, right(LAYOUT))
    return mma_v2(a, b, gl.zeros([a.shape[0], a.shape[1], b.shape[2]], gl.float32, LAYOUT))


# -- LayerNorm, attention ----------------------------------------------------------------------------------------------


@gluon.jit
def normalise(x, eps):
    """Normalise [R, E] to mean 0 and variance 1; also return 1 / standard deviation [R]."""
    E: gl.constexpr = x.shape[1]
    centred = x - (gl.sum(x, axis=1) * (1.0 / E))[:, None]
    rstd = gl.rsqrt(gl.sum(centred * centred, axis=1) * (1.0 / E) + eps)
    return centred * rstd[:, None], rstd


@gluon.jit
def load_forbidden(mask_ptr, masked, N: gl.constexpr, WARPS: gl.constexpr):
    """Load the mask as a term of the scores, [1, 16, 16]: 0, or -inf where masked.

    Padding nodes attend to themselves.
    """
    LAYOUT: gl.constexpr = by_samples(WARPS)
    i = gl.arange(0, 16, gl.SliceLayout(0, gl.SliceLayout(2, LAYOUT)))[None, :][:, :, None]
    j = gl.arange(0, 16, gl.SliceLayout(0, gl.SliceLayout(1, LAYOUT)))[None, :][:, None, :]
    inside = (i < N) & (j < N)
    allowed = gl.load(mask_ptr + i * N + j, mask=inside & (masked != 0), other=1).to(gl.int1)
    return gl.where((inside & allowed) | (i == j), 0.0, float("-inf"))


@gluon.jit
def queries_and_keys(product, bias, h, scale, WARPS: gl.constexpr):
    """Split the product [R, 2 D] into queries and keys of head h, [S, 16, D] bfloat16 each; queries are scaled.

    Queries get their bias. The bias of keys would add the same to all scores of a query, which the softmax cancels.
    """
    D: gl.constexpr = product.shape[1] // 2
    q, k = gl.split(gl.permute(gl.reshape(product, [product.shape[0], 2, D]), (0, 2, 1)))
    q = gl.convert_layout(q, by_rows(D, WARPS))
    q = q * scale + vector(bias, h * D, D, WARPS) * scale
    return by_sample(q.to(gl.bfloat16), WARPS), by_sample(k.to(gl.bfloat16), WARPS)


@gluon.jit
def softmax_numerator(scores, forbidden):
    """Return e^(scores - row maximum) [S, 16, 16], 0 where masked, and its row sums [S, 16, 1]."""
    scores += forbidden
    p = gl.exp2(scores * LOG2E - (gl.max(scores, axis=2) * LOG2E)[:, :, None])
    return p, gl.sum(p, axis=2)[:, :, None]
