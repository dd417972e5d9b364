# mypy: ignore-errors
"""Arithmetic that kernels share."""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)  # the hardware's exponential is to base 2


@triton.jit
def to_tf32(x):
    """Float32, rounded to the 11 bits that TF32 keeps.

    The matrix units cut the other 13 off, which is several times less exact than rounding them.
    """
    bits = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    return tl.where(x == x, bits.to(tl.float32, bitcast=True), x)  # the carry would make some NaNs a zero
