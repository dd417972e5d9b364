# mypy: ignore-errors
"""Gradients of attention's weights, and of the LayerNorm before it: sums over all rows, for many layers at once.

What attention is given is n w + b, by the normalised values n, the weight w and the bias b of the LayerNorm before it.
With G the sum of grad^T n, and g that of grad, its weight W gets G w + g b; w gets the sum over outputs of W G, and b
that of W g, each with what comes along the path around attention. So the rows are read only once.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2

from .layouts import by_tiles, column, in_pieces
from .sums import along, fetch_tile, first_factor, loaded, ones, room_for_tiles, second_factor, share_of_rows, sum_of


@gluon.jit
def fetch(tiles, grad_qkv_ptr, normed_ptr, mixed_ptr, grad_sum_ptr, k, size, E: gl.constexpr, WARPS: gl.constexpr):
    """Starts to bring the k-th tile of everything."""
    for third in gl.static_range(3):
        fetch_tile(tiles[third], grad_qkv_ptr + third * E, k, size, 3 * E, WARPS)
    fetch_tile(tiles[3], normed_ptr, k, size, E, WARPS)
    fetch_tile(tiles[4], mixed_ptr, k, size, E, WARPS)
    fetch_tile(tiles[5], grad_sum_ptr, k, size, E, WARPS)
    async_copy.commit_group()


@gluon.jit
def store_input_gradient(
    weight, bias, FIRST: gl.constexpr, scale, shift, in_weight, weight_ptr, bias_ptr, LAYOUT: gl.constexpr
):
    """Stores E rows of the gradient, from row FIRST on; returns what the LayerNorm before gets from them, [E] each."""
    E: gl.constexpr = weight.shape[0]
    f = FIRST + column(gl.arange(0, E, gl.SliceLayout(1, LAYOUT)))
    e = column(gl.arange(0, E, gl.SliceLayout(0, LAYOUT)))
    at = f[:, None] * E + e[None, :]
    gl.store(weight_ptr + at, weight * scale[None, :] + bias[:, None] * shift[None, :])
    gl.store(bias_ptr + f, bias)
    given = gl.load(in_weight + at).to(gl.float32)
    return gl.sum(given * weight, axis=0), gl.sum(given * bias[:, None], axis=0)


@gluon.jit(do_not_specialize=["num_rows", "rows_each", "first", "num_layers"])
def attention_gradient_kernel(
    # inputs: factors [count, M, width] of the layers from `first` on; of all layers the saved values and parameters
    grad_qkv_ptr, mixed_ptr, grad_sum_ptr, saved_ptr, in_weight, norm2,
    # outputs, within [shares, L, LAYER]
    in_weight_ptr, in_bias_ptr, out_weight_ptr, out_bias_ptr, norm2_ptr,
    # sizes
    num_rows, rows_each, first, num_layers,
    E: gl.constexpr, ROWS: gl.constexpr, STAGES: gl.constexpr, LAYER: gl.constexpr,
):  # fmt: skip
    """What this program's share of the rows gives, for layer `first` + its second index."""
    WARPS: gl.constexpr = gl.num_warps()
    LAYOUT: gl.constexpr = by_tiles(WARPS)
    slot = gl.program_id(1)
    layer = first + slot
    begin, size = share_of_rows(num_rows, rows_each)
    row = slot * num_rows.to(gl.int64) + begin
    grad_qkv_ptr += row * (3 * E)
    mixed_ptr += row * E
    grad_sum_ptr += row * E
    saved_ptr += (2 * layer * num_rows.to(gl.int64) + begin) * E
    q, k, v = room_for_tiles(ROWS, E, STAGES), room_for_tiles(ROWS, E, STAGES), room_for_tiles(ROWS, E, STAGES)
    n, mixed, du = room_for_tiles(ROWS, E, STAGES), room_for_tiles(ROWS, E, STAGES), room_for_tiles(ROWS, E, STAGES)
    tiles = (q, k, v, n, mixed, du)
    for step in gl.static_range(STAGES - 1):
        fetch(tiles, grad_qkv_ptr, saved_ptr, mixed_ptr, grad_sum_ptr, step, size, E, WARPS)

    one = ones(ROWS, LAYOUT)
    grad_q = gl.zeros([E, E], gl.float32, LAYOUT)
    grad_k, grad_v, grad_out = grad_q, grad_q, grad_q
    sum_q = gl.zeros([E, 16], gl.float32, LAYOUT)
    sum_k, sum_v, sum_out = sum_q, sum_q, sum_q
    around = gl.zeros([ROWS, E], gl.float32, in_pieces(E, WARPS))
    for step in range((size + ROWS - 1) // ROWS):
        async_copy.wait_group(STAGES - 2)
        fetch(tiles, grad_qkv_ptr, saved_ptr, mixed_ptr, grad_sum_ptr, step + STAGES - 1, size, E, WARPS)
        at = step % STAGES
        given = second_factor(n.index(at), LAYOUT)
        grad = first_factor(q.index(at), LAYOUT)
        grad_q, sum_q = mma_v2(grad, given, grad_q), mma_v2(grad, one, sum_q)
        grad = first_factor(k.index(at), LAYOUT)
        grad_k, sum_k = mma_v2(grad, given, grad_k), mma_v2(grad, one, sum_k)
        grad = first_factor(v.index(at), LAYOUT)
        grad_v, sum_v = mma_v2(grad, given, grad_v), mma_v2(grad, one, sum_v)
        grad = first_factor(du.index(at), LAYOUT)
        grad_out = mma_v2(grad, second_factor(mixed.index(at), LAYOUT), grad_out)
        sum_out = mma_v2(grad, one, sum_out)
        around += loaded(n.index(at), WARPS) * loaded(du.index(at), WARPS)
    async_copy.wait_group(0)

    to = (gl.program_id(0) * num_layers + layer).to(gl.int64) * LAYER
    e = column(gl.arange(0, E, gl.SliceLayout(0, LAYOUT)))
    before = norm2 + gl.maximum(layer - 1, 0) * LAYER
    scale = gl.where(layer > 0, gl.load(before + e), 1.0)  # the first layer's input is no LayerNorm's output
    shift = gl.where(layer > 0, gl.load(before + E + e), 0.0)
    in_weight += layer * LAYER
    in_weight_ptr += to
    in_bias_ptr += to
    norm_w, norm_b = store_input_gradient(
        grad_q, sum_of(sum_q), 0, scale, shift, in_weight, in_weight_ptr, in_bias_ptr, LAYOUT
    )
    more_w, more_b = store_input_gradient(
        grad_k, sum_of(sum_k), E, scale, shift, in_weight, in_weight_ptr, in_bias_ptr, LAYOUT
    )
    last_w, last_b = store_input_gradient(
        grad_v, sum_of(sum_v), 2 * E, scale, shift, in_weight, in_weight_ptr, in_bias_ptr, LAYOUT
    )
    f = column(gl.arange(0, E, gl.SliceLayout(1, LAYOUT)))
    gl.store(out_weight_ptr + to + f[:, None] * E + e[None, :], grad_out)
    bias = sum_of(sum_out)
    gl.store(out_bias_ptr + to + f, bias)
    if layer > 0:
        norm2_ptr += to - LAYER
        gl.store(norm2_ptr + e, norm_w + more_w + last_w + along(gl.sum(around, axis=0), LAYOUT))
        gl.store(norm2_ptr + E + e, norm_b + more_b + last_b + along(bias, LAYOUT))
