# mypy: ignore-errors
"""The gradients of all parameters from their sums over shares of the rows, in one launch."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .layouts import in_columns, in_turn


@gluon.jit
def total_of_last_norm(
    norms_ptr, total_ptr, first, num_norms, WIDTH: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr
):
    """Of rows [num_norms, WIDTH], COLUMNS columns from `first` on."""
    LAYOUT: gl.constexpr = in_columns(COLUMNS, gl.num_warps())
    row = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
    at = first + gl.arange(0, COLUMNS, gl.SliceLayout(0, LAYOUT))
    total = gl.zeros([ROWS, COLUMNS], gl.float32, LAYOUT)
    for start in range(0, num_norms, ROWS):
        there = (start + row < num_norms)[:, None]
        total += gl.load(norms_ptr + (start + row)[:, None] * WIDTH + at[None, :], mask=there, other=0.0)
    gl.store(total_ptr + at, gl.sum(total, axis=0))


@gluon.jit(do_not_specialize=["size", "attention_shares", "ff_shares", "num_norms"])
def total_kernel(
    # inputs [shares, L * LAYER], [programs of the backward pass, 2 E]
    sums_ptr, norms_ptr,
    # output [L * LAYER]
    total_ptr,
    # sizes
    size, attention_shares, ff_shares, num_norms,
    LAYER: gl.constexpr, NORM1: gl.constexpr, NORM2: gl.constexpr, BLOCK: gl.constexpr, ROWS: gl.constexpr,
    COLUMNS: gl.constexpr,
):  # fmt: skip
    """Of each layer, what lies between NORM1 and NORM2 has so many shares as the feed-forward part's sums. What the
    last LayerNorm gets, which nothing follows, is in no sum; the first programs are for it, COLUMNS of it each."""
    WIDTH: gl.constexpr = LAYER - NORM2
    program = gl.program_id(0)
    if program < WIDTH // COLUMNS:
        first = program * COLUMNS
        total_of_last_norm(norms_ptr, total_ptr + size - WIDTH, first, num_norms, WIDTH, ROWS, COLUMNS)
    else:
        at = (program - WIDTH // COLUMNS) * BLOCK + gl.arange(0, BLOCK, in_turn(BLOCK, gl.num_warps()))
        place = at % LAYER
        shares = gl.where((place >= NORM1) & (place < NORM2), ff_shares, attention_shares)
        total = gl.zeros([BLOCK], gl.float32, in_turn(BLOCK, gl.num_warps()))
        for share in range(gl.maximum(attention_shares, ff_shares)):
            total += gl.load(sums_ptr + at, mask=(share < shares) & (at < size - WIDTH), other=0.0)
            sums_ptr += size
        gl.store(total_ptr + at, total, mask=at < size - WIDTH)
