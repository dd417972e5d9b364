# mypy: ignore-errors
"""Functions that the sums over all rows share: tiles of rows that pass through shared memory."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from .layouts import coalesced_matrix, right, shared_matrix, to_float32


@gluon.jit
def share_of_rows(share, num_rows, rows_each):
    """Return the first row of a share, and the number of its rows."""
    begin = share.to(gl.int64) * rows_each
    return begin, gl.minimum(num_rows - begin, rows_each).to(gl.int32)


@gluon.jit
def allocate_tiles(ROWS: gl.constexpr, E: gl.constexpr, STAGES: gl.constexpr):
    """Allocate shared memory for STAGES tiles [ROWS, E]."""
    return gl.allocate_shared_memory(gl.bfloat16, [STAGES, ROWS, E], shared_matrix(E))


@gluon.jit
def fetch_tile(tiles, ptr, k, size, STRIDE: gl.constexpr, WARPS: gl.constexpr):
    """Start copying the k-th tile of `size` rows, STRIDE apart; rows beyond the end are zero."""
    ROWS: gl.constexpr = tiles.shape[1]
    LAYOUT: gl.constexpr = coalesced_matrix(tiles.shape[2], WARPS)
    rows = k * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
    cols = gl.arange(0, tiles.shape[2], gl.SliceLayout(0, LAYOUT))
    at = ptr + rows[:, None] * STRIDE + cols[None, :]
    async_copy.async_copy_global_to_shared(tiles.index(k % tiles.shape[0]), at, mask=(rows < size)[:, None])


@gluon.jit
def ones(ROWS: gl.constexpr, LAYOUT: gl.constexpr):
    """Return ones [ROWS, 16]: a product with them is a sum over rows."""
    return gl.full([ROWS, 16], 1.0, gl.bfloat16, right(LAYOUT))


@gluon.jit
def sum_of(product):
    """Return the sums [A] from a product with `ones`."""
    return gl.sum(product, axis=1) * (1.0 / 16)


@gluon.jit
def load_tile(tile, WARPS: gl.constexpr):
    """Load a tile as [ROWS, E] float32."""
    return to_float32(tile.load(coalesced_matrix(tile.shape[1], WARPS)))


@gluon.jit
def sums_by_column(rows, LAYOUT: gl.constexpr):
    """Sum [R, C] over rows to [C], in the column layout of LAYOUT."""
    return gl.convert_layout(gl.sum(rows, axis=0), gl.SliceLayout(0, LAYOUT))


@gluon.jit
def sums_by_row(rows, LAYOUT: gl.constexpr):
    """Sum [R, C] over rows to [C], in the row layout of LAYOUT."""
    return gl.convert_layout(gl.sum(rows, axis=0), gl.SliceLayout(1, LAYOUT))
