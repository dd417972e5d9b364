# mypy: ignore-errors
"""Register and memory layouts: the values that each thread holds, and the order of columns in memory.

The matrix units return the products of a warp in their own layout. Of every 8 columns, a thread holds two neighbours in
row g and in row g + 8. Stored directly, these would be pieces of 4 bytes. Tensors that only these kernels read are
therefore stored in another order. Of every 32 columns, the 8 that a thread holds of a row are contiguous in memory, so
that one access moves 16 bytes.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.constexpr_function
def by_rows(cols, warps):
    """Layout of products of rows with weights, [R, cols], 16 rows per warp."""
    return gl.NVMMADistributedLayout([3, 0], [warps, 1], [16, cols, 16])


@gluon.constexpr_function
def by_samples(warps):
    """Layout of products within a sample, [S, 16, C], one sample per warp."""
    return gl.NVMMADistributedLayout([2, 0], [warps, 1, 1], [1, 16, 8])


@gluon.constexpr_function
def by_columns(cols, warps):
    """Layout of sums over rows, [64, cols]: four warps along the first axis, the others along the second."""
    return gl.NVMMADistributedLayout([3, 0], [4, warps // 4], [16, cols // (warps // 4), 16])


@gluon.constexpr_function
def by_rows_narrow(warps):
    """Layout like `by_rows` of a product with few columns, [R, C]: 8 columns per instruction."""
    return gl.NVMMADistributedLayout([2, 0], [warps, 1], [16, 8])


@gluon.constexpr_function
def left(layout):
    """Layout of the first factor of a product with result `layout`."""
    return gl.DotOperandLayout(0, layout, 2)


@gluon.constexpr_function
def right(layout):
    """Layout of the second factor of a product with result `layout`."""
    return gl.DotOperandLayout(1, layout, 2)


@gluon.constexpr_function
def in_memory(rows, cols, warps):
    """Layout like `by_rows`, [R, C], with columns in their order in memory."""
    in_thread = [[0, 1], [0, 2], [0, 4], *([0, 32 * b] for b in bits(cols // 32)), [8, 0]]
    in_thread += [[16 * warps * b, 0] for b in bits(rows // (16 * warps))]
    in_warp = [[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]]
    return gl.DistributedLinearLayout(in_thread, in_warp, [[16 * b, 0] for b in bits(warps)], [], [rows, cols])


@gluon.constexpr_function
def bits(size):
    """Return the powers of two below `size`, which is itself a power of two."""
    return [1 << k for k in range(size.bit_length() - 1)]


@gluon.constexpr_function
def shared_matrix(cols):
    """Layout of a bfloat16 matrix in shared memory, as the matrix units read it."""
    return gl.NVMMASharedLayout(min(128, 2 * cols), 16, 2)


@gluon.constexpr_function
def coalesced_matrix(cols, warps):
    """Layout of a matrix, [R, cols]: 8 neighbouring columns per thread, which are 16 bytes of bfloat16."""
    return gl.BlockedLayout([1, 8], [32 // (cols // 8), cols // 8], [warps, 1], [1, 0])


@gluon.constexpr_function
def shared_vector():
    """Layout of a vector in shared memory, in plain order."""
    return gl.SwizzledSharedLayout(1, 1, 1, [0])


@gluon.constexpr_function
def coalesced_vector(size, warps):
    """Layout of a vector, [size]: neighbouring entries per thread, in the order of the threads."""
    return gl.BlockedLayout([max(1, size // (32 * warps))], [32], [warps], [0])


@gluon.constexpr_function
def in_columns(cols, warps):
    """Layout of a float32 matrix whose rows are summed: neighbouring threads have neighbouring columns, at most 32."""
    return gl.BlockedLayout([1, 1], [32 // cols, cols], [warps, 1], [1, 0])


@gluon.jit
def column(place):
    """Return the column that is stored at a place."""
    return (place & ~31) | ((place >> 1) & 3) << 3 | ((place >> 3) & 3) << 1 | (~place & 1)


@gluon.jit
def to_memory(x, WARPS: gl.constexpr):
    """Convert [R, C] float32 in layout `by_rows` to bfloat16 in the order of memory.

    Neighbours are swapped, so that the stored tensor is not also an operand of a product. Otherwise the compiler would
    try to hold one value in two register layouts at once.
    """
    R: gl.constexpr = x.shape[0]
    C: gl.constexpr = x.shape[1]
    x = gl.permute(_swap_neighbours(gl.reshape(x, [R, C // 32, 4, 4, 2])), (0, 1, 3, 2, 4))
    return to_bfloat16(gl.convert_layout(gl.reshape(x, [R, C]), in_memory(R, C, WARPS)))


@gluon.jit
def from_memory(x, WARPS: gl.constexpr):
    """Convert from the order of memory to float32 in layout `by_rows`."""
    R: gl.constexpr = x.shape[0]
    C: gl.constexpr = x.shape[1]
    x = _swap_neighbours(gl.permute(gl.reshape(to_float32(x), [R, C // 32, 4, 4, 2]), (0, 1, 3, 2, 4)))
    return gl.convert_layout(gl.reshape(x, [R, C]), by_rows(C, WARPS))


@gluon.jit
def to_bfloat16(x):
    """Convert float32 -> bfloat16, two per instruction; the compiler splits a pair if one value has another use."""
    return gl.inline_asm_elementwise(
        "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,r,r", [x], dtype=gl.bfloat16, is_pure=True, pack=2
    )


@gluon.jit
def to_float32(x):
    """Convert bfloat16 -> float32, two values of a register at once; the compiler would extract each one first.

    "&": the first result must not share the input's register, which the second instruction still reads.
    """
    return gl.inline_asm_elementwise(
        "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;", "=&r,=r,r", [x], dtype=gl.float32, is_pure=True, pack=2
    )


@gluon.jit
def _swap_neighbours(x):
    """Swap the last axis, [..., 2] -> [..., 2]."""
    first, second = gl.split(x)
    return gl.join(second, first)


@gluon.jit
def transpose_blocks(x):
    """Transpose 8 x 8 blocks across threads: a thread that held two columns of a row then holds two rows of a column.

    The result, [S, 16, C] bfloat16 with the same values, is the second factor of a product over rows or, transposed,
    the first.
    """
    S: gl.constexpr = x.shape[0]
    C: gl.constexpr = x.shape[2]
    x = gl.inline_asm_elementwise(
        "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;", "=r,r", [x], dtype=gl.bfloat16, is_pure=True, pack=2
    )
    return gl.reshape(gl.permute(gl.reshape(x, [S, 2, 8, C // 8, 8]), (0, 1, 4, 3, 2)), [S, 16, C])


@gluon.jit
def transposed(x):
    """Transpose [S, I, J] -> [S, J, I]."""
    return gl.permute(x, (0, 2, 1))


@gluon.jit
def by_sample(x, WARPS: gl.constexpr):
    """Reshape [R, C] -> [S, 16, C]."""
    return gl.convert_layout(gl.reshape(x, [x.shape[0] // 16, 16, x.shape[1]]), by_samples(WARPS))


@gluon.jit
def by_row(x, WARPS: gl.constexpr):
    """Reshape [S, 16, C] -> [R, C]."""
    return gl.convert_layout(gl.reshape(x, [x.shape[0] * 16, x.shape[2]]), by_rows(x.shape[2], WARPS))
