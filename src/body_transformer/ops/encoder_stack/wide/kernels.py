# mypy: ignore-errors
"""What stands between the matrix products of a wide layer, as Triton kernels; `rows.py` launches them.

Column sums leave a kernel as one partial sum a program, added up later in a fixed order: the same bits every time.

LayerNorm's tiles are [P, R, C]: R rows of E entries, each row in P pieces of C. A piece is what one warp reads at once,
so that a row is all in one warp: its sums then need no barrier.
"""

import triton
import triton.language as tl


@triton.jit
def add_norm(
    update, bias, value, rest, weight, shift,  # inputs
    out, out_rest, normal, scale,  # outputs
    num_rows, eps,
    E: tl.constexpr, P: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    cols = _columns(P, C)
    rows = tl.program_id(0) * R + tl.arange(0, R)
    at, inside = _places(rows, num_rows, cols, E)
    total = tl.load(update + at, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(value + at, mask=inside, other=0.0).to(tl.float32)
    if rest is not None:
        total += tl.load(rest + at, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(bias + cols, mask=cols < E, other=0.0)
    centred = tl.where(inside, total - _row_sums(total)[None, :, None] / E, 0.0)
    inverse = 1.0 / tl.sqrt_rn(_row_sums(centred * centred) / E + eps)
    rows_normal = centred * inverse[None, :, None]
    gain = tl.load(weight + cols, mask=cols < E, other=0.0)
    result = rows_normal * gain + tl.load(shift + cols, mask=cols < E, other=0.0)
    rounded = result.to(out.dtype.element_ty)
    tl.store(out + at, rounded, mask=inside)
    if out_rest is not None:
        tl.store(out_rest + at, (result - rounded.to(tl.float32)).to(out_rest.dtype.element_ty), mask=inside)
    if normal is not None:
        tl.store(normal + at, rows_normal.to(normal.dtype.element_ty), mask=inside)
        tl.store(scale + rows, inverse, mask=rows < num_rows)


@triton.jit
def norm_backward(
    first, second, normal, scale, weight,  # inputs
    out, sums,  # outputs
    num_rows,
    E: tl.constexpr, P: tl.constexpr, R: tl.constexpr, C: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    cols = _columns(P, C)
    gain = tl.load(weight + cols, mask=cols < E, other=0.0)
    weight_sum = tl.zeros([P, R, C], tl.float32)
    shift_sum = tl.zeros([P, R, C], tl.float32)
    bias_sum = tl.zeros([P, R, C], tl.float32)
    for start in tl.range(tl.program_id(0) * R, num_rows, tl.num_programs(0) * R, num_stages=STAGES):
        rows = start + tl.arange(0, R)
        at, inside = _places(rows, num_rows, cols, E)
        gradient = tl.load(first + at, mask=inside, other=0.0).to(tl.float32)
        if second is not None:
            gradient += tl.load(second + at, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(normal + at, mask=inside, other=0.0).to(tl.float32)
        inverse = tl.load(scale + rows, mask=rows < num_rows, other=0.0)[None, :, None]
        weighted = gradient * gain
        along = _row_sums(weighted * x)[None, :, None] / E
        mean = _row_sums(weighted)[None, :, None] / E
        result = tl.where(inside, (weighted - mean - x * along) * inverse, 0.0)
        tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)
        weight_sum += gradient * x
        shift_sum += gradient
        bias_sum += result
    to = sums + tl.program_id(0) * 3 * E + cols
    tl.store(to, tl.sum(weight_sum, 1, keep_dims=True), mask=cols < E)
    tl.store(to + E, tl.sum(shift_sum, 1, keep_dims=True), mask=cols < E)
    tl.store(to + 2 * E, tl.sum(bias_sum, 1, keep_dims=True), mask=cols < E)


@triton.jit
def _columns(P: tl.constexpr, C: tl.constexpr):
    """[P, 1, C]"""
    return tl.arange(0, P)[:, None, None] * C + tl.arange(0, C)[None, None, :]


@triton.jit
def _places(rows, num_rows, cols, E: tl.constexpr):
    """[P, R, C] offsets, and which of them exist."""
    return rows.to(tl.int64)[None, :, None] * E + cols, (rows < num_rows)[None, :, None] & (cols < E)


@triton.jit
def _row_sums(tile):
    """[P, R, C] -> [R]"""
    return tl.sum(tl.sum(tile, 0), 1)


@triton.jit
def relu_backward(
    gradient, hidden,  # inputs; `gradient` is overwritten
    sums,  # output
    num_rows,
    F: tl.constexpr, C: tl.constexpr, R: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    cols = tl.program_id(1) * C + tl.arange(0, C)
    total = tl.zeros([R, C], tl.float32)
    for start in tl.range(tl.program_id(0) * R, num_rows, tl.num_programs(0) * R, num_stages=STAGES):
        rows = start + tl.arange(0, R)
        inside = (rows < num_rows)[:, None] & (cols < F)[None, :]
        at = rows.to(tl.int64)[:, None] * F + cols[None, :]
        open_gate = tl.load(hidden + at, mask=inside, other=0.0) > 0
        kept = tl.where(open_gate, tl.load(gradient + at, mask=inside, other=0.0), 0.0)
        tl.store(gradient + at, kept, mask=inside)
        total += kept.to(tl.float32)
    tl.store(sums + tl.program_id(0) * F + cols, tl.sum(total, 0), mask=cols < F)
