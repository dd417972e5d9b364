# mypy: ignore-errors
"""Arithmetic that all Triton kernels share."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)  # the hardware's exponential is to base 2


PTX = tl.constexpr(torch.version.hip is None and not triton.knobs.runtime.interpret)
"""Whether a kernel may contain PTX instructions."""


@triton.jit
def to_float32(x):
    """Convert to float32. Two bfloat16 values take two instructions here, where Triton's own conversion takes three."""
    if PTX and x.dtype == tl.bfloat16:
        return tl.inline_asm_elementwise(
            "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;", "=&r,=r,r", [x], dtype=tl.float32, is_pure=True, pack=2
        )
    else:
        return x.to(tl.float32)


@triton.jit
def to_tf32(x):
    """Prepare float32 for TF32 products, so that the matrix units, which truncate to 11 bits, round to the nearest."""
    power = (x.to(tl.int32, bitcast=True) & -0x800000).to(tl.float32, bitcast=True)  # sign and exponent alone
    return x + power * 2.0**-11  # half of the last bit that is kept; NaN and infinity do not change
