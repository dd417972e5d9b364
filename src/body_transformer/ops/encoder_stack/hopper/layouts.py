# mypy: ignore-errors
"""Which thread holds what, and in which order columns lie in memory.

A warp's products come out as the matrix units give them: of every 8 columns a thread holds two neighbours, in row g and
in row g + 8. Stored as they are these would be pieces of 4 bytes. So what only our own kernels read is kept in another
order: of every 32 columns, the 8 that a thread holds of a row are neighbours in memory, 16 bytes at once.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.constexpr_function
def by_rows(cols, warps):
    """[R, cols], 16 rows a warp; what products of rows with weights give."""
    return gl.NVMMADistributedLayout([3, 0], [warps, 1], [16, cols, 16])


@gluon.constexpr_function
def by_samples(warps):
    """[S, 16, C], a sample a warp; what products within a sample give."""
    return gl.NVMMADistributedLayout([2, 0], [warps, 1, 1], [1, 16, 8])


@gluon.constexpr_function
def by_columns(cols, warps):
    """[64, cols], for sums over rows: four warps along the first, the others along the second."""
    return gl.NVMMADistributedLayout([3, 0], [4, warps // 4], [16, cols // (warps // 4), 16])


@gluon.constexpr_function
def by_units(warps):
    """[A, C], 16 rows a warp; for narrow products."""
    return gl.NVMMADistributedLayout([2, 0], [warps, 1], [16, 8])


@gluon.constexpr_function
def left(layout):
    """The first factor of a product that comes out as `layout`."""
    return gl.DotOperandLayout(0, layout, 2)


@gluon.constexpr_function
def right(layout):
    """The second factor."""
    return gl.DotOperandLayout(1, layout, 2)


@gluon.constexpr_function
def in_memory(rows, cols, warps):
    """[R, C] as `by_rows`, columns in the order in which they are kept."""
    in_thread = [[0, 1], [0, 2], [0, 4], *([0, 32 * b] for b in bits(cols // 32)), [8, 0]]
    in_thread += [[16 * warps * b, 0] for b in bits(rows // (16 * warps))]
    in_warp = [[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]]
    return gl.DistributedLinearLayout(in_thread, in_warp, [[16 * b, 0] for b in bits(warps)], [], [rows, cols])


@gluon.constexpr_function
def bits(size):
    """1, 2, 4, … below a power of two."""
    return [1 << k for k in range(size.bit_length() - 1)]


@gluon.constexpr_function
def in_shared(cols):
    """A matrix of bfloat16 in shared memory, as the matrix units read it."""
    return gl.NVMMASharedLayout(min(128, 2 * cols), 16, 2)


@gluon.constexpr_function
def in_pieces(cols, warps):
    """A matrix of bfloat16 on its way to shared memory: 16 bytes a thread."""
    return gl.BlockedLayout([1, 8], [32 // (cols // 8), cols // 8], [warps, 1], [1, 0])


@gluon.constexpr_function
def in_order():
    """A vector in shared memory."""
    return gl.SwizzledSharedLayout(1, 1, 1, [0])


@gluon.constexpr_function
def in_turn(size, warps):
    """A vector on its way to shared memory."""
    return gl.BlockedLayout([max(1, size // (32 * warps))], [32], [warps], [0])


@gluon.constexpr_function
def in_columns(cols, warps):
    """A matrix of float32 whose rows are summed up: neighbouring threads have neighbouring columns, 32 at most."""
    return gl.BlockedLayout([1, 1], [32 // cols, cols], [warps, 1], [1, 0])


@gluon.jit
def column(place):
    """Which column is kept at a place."""
    return (place & ~31) | ((place >> 1) & 3) << 3 | ((place >> 3) & 3) << 1 | (~place & 1)


@gluon.jit
def to_memory(x, WARPS: gl.constexpr):
    """[R, C] float32 as `by_rows` -> bfloat16 as it is kept.

    The two neighbours change places: what is kept is then no operand of a product, and the compiler does not try to
    hold one value in two orders of registers at once.
    """
    R: gl.constexpr = x.shape[0]
    C: gl.constexpr = x.shape[1]
    x = gl.permute(_neighbours_changed(gl.reshape(x, [R, C // 32, 4, 4, 2])), (0, 1, 3, 2, 4))
    return narrowed(gl.convert_layout(gl.reshape(x, [R, C]), in_memory(R, C, WARPS)))


@gluon.jit
def from_memory(x, WARPS: gl.constexpr):
    """The other way round."""
    R: gl.constexpr = x.shape[0]
    C: gl.constexpr = x.shape[1]
    x = _neighbours_changed(gl.permute(gl.reshape(widened(x), [R, C // 32, 4, 4, 2]), (0, 1, 3, 2, 4)))
    return gl.convert_layout(gl.reshape(x, [R, C]), by_rows(C, WARPS))


@gluon.jit
def narrowed(x):
    """float32 -> bfloat16, two at a time; the compiler would do it one by one where one is needed elsewhere, too."""
    return gl.inline_asm_elementwise(
        "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,r,r", [x], dtype=gl.bfloat16, is_pure=True, pack=2
    )


@gluon.jit
def widened(x):
    """bfloat16 -> float32, two that lie side by side in a register at a time; the compiler takes each out first. "&":
    the first result is written before the second reads, so it must not be where both came from."""
    return gl.inline_asm_elementwise(
        "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;", "=&r,=r,r", [x], dtype=gl.float32, is_pure=True, pack=2
    )


@gluon.jit
def _neighbours_changed(x):
    """[…, 2] -> […, 2]"""
    first, second = gl.split(x)
    return gl.join(second, first)


@gluon.jit
def crossed(x):
    """[S, 16, C] bfloat16 -> the same, but a thread that held two columns of a row holds two rows of a column: as the
    second factor of a product over rows, or turned, as the first."""
    S: gl.constexpr = x.shape[0]
    C: gl.constexpr = x.shape[2]
    x = gl.inline_asm_elementwise(
        "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;", "=r,r", [x], dtype=gl.bfloat16, is_pure=True, pack=2
    )
    return gl.reshape(gl.permute(gl.reshape(x, [S, 2, 8, C // 8, 8]), (0, 1, 4, 3, 2)), [S, 16, C])


@gluon.jit
def turned(x):
    """[S, I, J] -> [S, J, I]"""
    return gl.permute(x, (0, 2, 1))


@gluon.jit
def by_sample(x, WARPS: gl.constexpr):
    """[R, C] -> [S, 16, C]"""
    return gl.convert_layout(gl.reshape(x, [x.shape[0] // 16, 16, x.shape[1]]), by_samples(WARPS))


@gluon.jit
def by_row(x, WARPS: gl.constexpr):
    """[S, 16, C] -> [R, C]"""
    return gl.convert_layout(gl.reshape(x, [x.shape[0] * 16, x.shape[2]]), by_rows(x.shape[2], WARPS))
