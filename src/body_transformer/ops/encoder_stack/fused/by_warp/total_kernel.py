# mypy: ignore-errors
"""The gradients of all parameters from their sums over shares of the rows, in one launch."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .layouts import in_turn


@gluon.jit(do_not_specialize=["size", "attention_shares", "ff_shares"])
def total_kernel(
    # input [shares, L * LAYER]
    sums_ptr,
    # output [L * LAYER]
    total_ptr,
    # sizes
    size, attention_shares, ff_shares,
    LAYER: gl.constexpr, NORM1: gl.constexpr, NORM2: gl.constexpr, BLOCK: gl.constexpr,
):  # fmt: skip
    """Of each layer, what lies between NORM1 and NORM2 has so many shares as the feed-forward part's sums."""
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, in_turn(BLOCK, gl.num_warps()))
    place = at % LAYER
    shares = gl.where((place >= NORM1) & (place < NORM2), ff_shares, attention_shares)
    total = gl.zeros([BLOCK], gl.float32, in_turn(BLOCK, gl.num_warps()))
    for share in range(gl.maximum(attention_shares, ff_shares)):
        total += gl.load(sums_ptr + at, mask=(share < shares) & (at < size), other=0.0)
        sums_ptr += size
    gl.store(total_ptr + at, total, mask=at < size)
