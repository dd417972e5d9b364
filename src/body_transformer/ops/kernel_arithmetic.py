# mypy: ignore-errors
"""Arithmetic that kernels share."""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)  # the hardware's exponential is to base 2


@triton.jit
def to_tf32(x):
    """Float32 for products in TF32: the matrix units cut off all but 11 bits, which is then rounding to the nearest."""
    power = (x.to(tl.int32, bitcast=True) & -0x800000).to(tl.float32, bitcast=True)  # its sign and exponent alone
    return x + power * 2.0**-11  # half of the last bit that is kept; NaN and infinity stay what they are
