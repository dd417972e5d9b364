# mypy: ignore-errors
"""Functions that the fused kernels share: a program's rows, products, parameters, LayerNorm, masked scores.

A program owns S whole samples, each padded from N to NP nodes: R = S * NP rows. Widths are also padded to powers of two
(EP, DP). Entries beyond E, D, F or N are loaded as zero and never stored.
"""

import triton
import triton.language as tl

from ...triton_common import to_tf32

LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def program_rows(batch, N: tl.constexpr, NP: tl.constexpr, S: tl.constexpr):
    """Return this program's first row of [B * N, ...], its rows [R] counted from there, and which of them exist."""
    r = tl.arange(0, S * NP)
    sample = r // NP
    node = r % NP
    first = tl.program_id(0) * S
    return first.to(tl.int64) * N, sample * N + node, (first + sample < batch) & (node < N)


@triton.jit
def share_of_rows(num_rows, rows_each):
    """Return the first row of this program's share, and the number of its rows."""
    begin = tl.program_id(0).to(tl.int64) * rows_each
    return begin, tl.minimum(num_rows - begin, rows_each).to(tl.int32)


@triton.jit
def operand(x, DT: tl.constexpr, PRECISION: tl.constexpr):
    """Return x as an operand of the matrix units; for TF32 it is adjusted so that their truncation rounds x."""
    if PRECISION == "tf32" and x.dtype == tl.float32:
        return to_tf32(x)
    else:
        return x.to(DT)


@triton.jit
def fence(k, FENCE: tl.constexpr):
    """Separate the prefetched tile of step k from its first product.

    Hopper's matrix units read shared memory through the asynchronous proxy, and might read stale data without a fence.
    """
    if FENCE:
        tl.inline_asm_elementwise(
            "fence.proxy.async.shared::cta; mov.b32 $0, $1;", "=r,r", [k], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def dot(a, b, acc, PRECISION: tl.constexpr):
    """Return acc + a b for operands, summed in float32."""
    INPUT: tl.constexpr = "tf32x3" if PRECISION == "fp32" else "tf32"  # three TF32 products keep float32's bits
    return tl.dot(a, b, acc, input_precision=INPUT)


@triton.jit
def load_matrix(
    ptr, rows, cols, stride: tl.constexpr, num_rows: tl.constexpr, num_cols: tl.constexpr, whole: tl.constexpr
):
    """Load entries [rows, cols] of a row-major matrix, with zeros beyond its edges; with `whole`, all are inside."""
    if whole:
        return tl.load(ptr + rows * stride + cols)
    else:
        return tl.load(ptr + rows * stride + cols, mask=(rows < num_rows) & (cols < num_cols), other=0.0)


@triton.jit
def load_vector(ptr, ids, size: tl.constexpr, whole: tl.constexpr):
    """Load the entries of a vector as [1, ids], zero beyond its end."""
    if whole:
        return tl.load(ptr + ids)[None, :]
    else:
        return tl.load(ptr + ids, mask=ids < size, other=0.0)[None, :]


@triton.jit
def normalise(u, eps, E: tl.constexpr, EP: tl.constexpr):
    """Normalise [R, EP] to mean 0 and variance 1 over the first E entries; also return 1 / standard deviation [R]."""
    centred = u - (tl.sum(u, axis=1) * (1.0 / E))[:, None]
    if E != EP:
        centred = tl.where(tl.arange(0, EP)[None, :] < E, centred, 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=1) * (1.0 / E) + eps)
    return centred * rstd[:, None], rstd


@triton.jit
def normalise_backward(grad, normed, rstd, weight, E: tl.constexpr):
    """Return the gradient before the normalisation, from that of `normed * weight + bias`."""
    grad = grad * weight
    mean = tl.sum(grad, axis=1) * (1.0 / E)
    along = tl.sum(grad * normed, axis=1) * (1.0 / E)
    return (grad - mean[:, None] - normed * along[:, None]) * rstd[:, None]


@triton.jit
def by_sample(x, S: tl.constexpr):
    """Reshape [R, D] -> [S, NP, D]; a single sample stays a matrix, which the matrix units take in one piece."""
    if S > 1:
        x = tl.reshape(x, [S, x.shape[0] // S, x.shape[1]])
    return x


@triton.jit
def by_row(x, S: tl.constexpr):
    """Reshape [S, NP, D] -> [R, D]."""
    if S > 1:
        x = tl.reshape(x, [x.shape[0] * x.shape[1], x.shape[2]])
    return x


@triton.jit
def transposed(x, S: tl.constexpr):
    """Transpose [S, I, J] -> [S, J, I]."""
    if S > 1:
        x = tl.permute(x, (0, 2, 1))
    else:
        x = tl.trans(x)
    return x


@triton.jit
def per_sample(rows: tl.constexpr, cols: tl.constexpr, S: tl.constexpr):
    """Return zeros [S, rows, cols]."""
    if S > 1:
        zeros = tl.zeros([S, rows, cols], tl.float32)
    else:
        zeros = tl.zeros([rows, cols], tl.float32)
    return zeros


@triton.jit
def load_allowed(mask_ptr, masked, N: tl.constexpr, NP: tl.constexpr, S: tl.constexpr):
    """Return where attention is allowed, [1, NP, NP]: by the mask if `masked`, else everywhere.

    Padding nodes attend to themselves.
    """
    i = tl.arange(0, NP)[:, None]
    j = tl.arange(0, NP)[None, :]
    inside = (i < N) & (j < N)
    allowed = tl.load(mask_ptr + i * N + j, mask=inside & (masked != 0), other=1).to(tl.int1)
    allowed = (inside & allowed) | (i == j)
    if S > 1:
        allowed = allowed[None, :, :]
    return allowed


@triton.jit
def last_sum(x, S: tl.constexpr):
    """Sum over the last axis, [S, I, J] -> [S, I, 1]."""
    return tl.sum(x, axis=2 if S > 1 else 1, keep_dims=True)


@triton.jit
def softmax_numerator(scores, allowed, S: tl.constexpr):
    """Return 2^(scores - row maximum) [S, NP, NP], 0 where not allowed, and its row sums [S, NP, 1]."""
    scores = tl.where(allowed, scores, float("-inf"))
    p = tl.exp2(scores - tl.max(scores, axis=2 if S > 1 else 1, keep_dims=True))
    return p, last_sum(p, S)
