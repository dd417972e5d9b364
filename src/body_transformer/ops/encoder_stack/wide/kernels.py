# mypy: ignore-errors
"""Triton kernels for the steps between the matrix products of a wide layer; `rows.py` launches them.

Each program writes one partial column sum. These are added up later in a fixed order, so that the bits are repeatable.
"""

import triton
import triton.language as tl


@triton.jit
def add_norm(
    update, bias, value, rest, weight, shift,  # inputs
    out, out_rest, normal, scale,  # outputs
    num_rows, eps,
    E: tl.constexpr, EP: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * R + tl.arange(0, R)
    cols = tl.arange(0, EP)
    inside = (rows < num_rows)[:, None] & (cols < E)[None, :]
    at = rows.to(tl.int64)[:, None] * E + cols[None, :]
    total = tl.load(update + at, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(value + at, mask=inside, other=0.0).to(tl.float32)
    if rest is not None:
        total += tl.load(rest + at, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(bias + cols, mask=cols < E, other=0.0)[None, :]
    mean = tl.sum(total, 1) / E
    centred = tl.where(inside, total - mean[:, None], 0.0)
    inverse = 1.0 / tl.sqrt_rn(tl.sum(centred * centred, 1) / E + eps)
    rows_normal = centred * inverse[:, None]
    gain = tl.load(weight + cols, mask=cols < E, other=0.0)[None, :]
    result = rows_normal * gain + tl.load(shift + cols, mask=cols < E, other=0.0)[None, :]
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
    E: tl.constexpr, EP: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    cols = tl.arange(0, EP)
    gain = tl.load(weight + cols, mask=cols < E, other=0.0)[None, :]
    weight_sum = tl.zeros([R, EP], tl.float32)
    shift_sum = tl.zeros([R, EP], tl.float32)
    bias_sum = tl.zeros([R, EP], tl.float32)
    for start in tl.range(tl.program_id(0) * R, num_rows, tl.num_programs(0) * R):
        rows = start + tl.arange(0, R)
        inside = (rows < num_rows)[:, None] & (cols < E)[None, :]
        at = rows.to(tl.int64)[:, None] * E + cols[None, :]
        gradient = tl.load(first + at, mask=inside, other=0.0).to(tl.float32)
        if second is not None:
            gradient += tl.load(second + at, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(normal + at, mask=inside, other=0.0).to(tl.float32)
        inverse = tl.load(scale + rows, mask=rows < num_rows, other=0.0)
        weighted = gradient * gain
        along = tl.sum(weighted * x, 1) / E
        mean = tl.sum(weighted, 1) / E
        result = tl.where(inside, (weighted - mean[:, None] - x * along[:, None]) * inverse[:, None], 0.0)
        tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)
        weight_sum += gradient * x
        shift_sum += gradient
        bias_sum += result
    to = sums + tl.program_id(0) * 3 * E + cols
    tl.store(to, tl.sum(weight_sum, 0), mask=cols < E)
    tl.store(to + E, tl.sum(shift_sum, 0), mask=cols < E)
    tl.store(to + 2 * E, tl.sum(bias_sum, 0), mask=cols < E)


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
