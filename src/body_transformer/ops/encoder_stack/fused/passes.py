"""The forward and the backward pass: what is allocated, what is launched."""

import torch
from torch import Tensor

from ...sizes import num_blocks, padded
from .backward_kernel import backward_kernel
from .forward_kernel import forward_kernel
from .sizes import DTYPES, PRODUCT, Sizes
from .weight_gradient_kernel import weight_gradient_kernel

FACTOR_BYTES = 2 * 1024**3
"""Bound on what the backward pass writes down at a time for the weight gradients; of one layer it may be more."""


def forward(
    x: Tensor,
    parameters: list[Tensor],
    mask: Tensor,
    masked: list[bool],
    num_heads: int,
    eps: float,
    precision: str,
    save: bool,
) -> list[Tensor]:
    """The output [B, N, E]; with `save` also what the backward pass needs: all parameters, the same as operands, the
    input and every normalised value, every 1 / standard deviation."""
    sizes = Sizes.of(x, parameters, num_heads)
    flat, operands = pack(parameters, precision)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    saved, rstd = _kept(x if save else x[:0], sizes, operands.dtype)
    kernel = "forward" if save else "inference"
    forward_kernel[(sizes.programs(kernel, precision, len(x)),)](
        x.contiguous(),
        *_views(flat, operands, sizes),
        mask.contiguous(),
        out,
        saved,
        rstd,
        len(x),
        sizes.num_layers,
        _as_bits(masked),
        sizes.scale,
        eps,
        SAVE=save,
        **sizes.constants(kernel, precision),
    )
    return [out, flat, operands, saved, rstd] if save else [out]


def backward(
    grad_out: Tensor,
    kept: list[Tensor],
    x: Tensor,
    parameters: list[Tensor],
    mask: Tensor,
    masked: list[bool],
    num_heads: int,
    eps: float,
    precision: str,
) -> list[Tensor]:
    """The gradients of x [B, N, E] and of all parameters in one row, [L * layer]."""
    sizes = Sizes.of(x, parameters, num_heads)
    flat, operands, saved, rstd = kept
    num_rows, embed_dim = saved.shape[1], sizes.embed_dim
    programs = sizes.programs("backward", precision, len(x))
    norm_sums = flat.new_empty(programs, sizes.num_layers, 4 * embed_dim)
    shares = max(1, min(PRODUCT[precision].shares, num_rows // 512))  # by size alone, so that sums are repeatable
    sums = flat.new_empty(shares, sizes.num_layers, sizes.layer)
    grad = grad_out.contiguous()
    grad_x = torch.empty_like(grad)
    factors = _Factors(saved, sizes)
    turned = _turned(operands, sizes)
    for first in reversed(range(0, sizes.num_layers, factors.num_layers)):
        count = min(factors.num_layers, sizes.num_layers - first)
        backward_kernel[(programs,)](
            grad,
            saved,
            rstd,
            *_views(flat, operands, sizes),
            *turned,
            mask.contiguous(),
            grad_x,
            *factors.tensors,
            norm_sums,
            len(x),
            first,
            count,
            sizes.num_layers,
            _as_bits(masked),
            sizes.scale,
            TURNED=turned[0] is not operands,
            **sizes.constants("backward", precision),
        )
        factors.multiply(saved, flat, sums, sizes, first, count, precision)
        grad = grad_x
    grads, norms, at = sums.sum(0), norm_sums.sum(0), sizes.starts
    grads[:, at["norm1"] : at["weight1"]] = norms[:, : 2 * embed_dim]
    grads[:, at["norm2"] :] = norms[:, 2 * embed_dim :]
    return [grad_x, grads.view(-1)]


def parameter_gradients(stacks: list[Tensor], parameters: list[Tensor]) -> list[Tensor]:
    """The row of all gradients as one view for each parameter."""
    parts = torch.split(stacks[0], [parameter.numel() for parameter in parameters])
    return [part.view_as(parameter) for part, parameter in zip(parts, parameters, strict=True)]


def pack(parameters: list[Tensor], precision: str) -> tuple[Tensor, Tensor]:
    """All parameters in one row, [L * layer]: in float32, and as the products' operands."""
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
    if precision == "bf16":
        return flat, flat.to(torch.bfloat16)
    if precision == "tf32":  # to the nearest, as `tiles.operand` does: the matrix units only cut off
        rounded = ((flat.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)
        return flat, torch.where(flat.isnan(), flat, rounded)
    return flat, flat.clone()


class _Factors:
    """The two factors of every weight gradient, for as many layers as there is room for: [L, B * N, width] each."""

    def __init__(self, saved: Tensor, sizes: Sizes) -> None:
        embed, hidden = sizes.embed_dim, sizes.ff_dim
        widths = (embed, 3 * embed, embed, hidden, hidden, embed)
        a_layer = sum(widths) * saved.shape[1] * saved.element_size()
        self.num_layers = min(sizes.num_layers, max(1, FACTOR_BYTES // max(a_layer, 1)))
        self.tensors = [saved.new_empty(self.num_layers, saved.shape[1], width) for width in widths]

    def multiply(
        self, saved: Tensor, flat: Tensor, sums: Tensor, sizes: Sizes, first: int, count: int, precision: str
    ) -> None:
        """Writes the gradients of the linear layers of `count` encoder layers into `sums` [shares, L, layer]."""
        mixed, grad_qkv, grad_sum1, hidden, grad_hidden, grad_sum2 = (factor[:count] for factor in self.tensors)
        inputs, between = saved[2 * first :: 2], saved[2 * first + 1 :: 2]
        at = sizes.starts
        for weight, bias, grad, given, norm, after in (
            ("in_weight", "in_bias", grad_qkv, inputs, "norm2", 1),
            ("out_weight", "out_bias", grad_sum1, mixed, "norm2", -1),
            ("weight1", "bias1", grad_hidden, between, "norm1", 0),
            ("weight2", "bias2", grad_sum2, hidden, "norm1", -1),
        ):
            row = sums.view(-1)
            _weight_gradient(
                grad, given, flat[at[norm] :], row[at[weight] :], row[at[bias] :], sums, first, after, precision
            )


def _weight_gradient(
    grad: Tensor,
    given: Tensor,
    norm: Tensor,
    weight: Tensor,
    bias: Tensor,
    sums: Tensor,
    first: int,
    after: int,
    precision: str,
) -> None:
    shares, num_layers, layer = sums.shape
    count, num_rows, outputs = grad.shape
    inputs = given.shape[2]
    launch = PRODUCT[precision]
    block_a, block_c = min(64, padded(outputs, least=16)), min(128, padded(inputs, least=16))
    blocks = num_blocks(outputs, block_a) * num_blocks(inputs, block_c)
    rows_each = num_blocks(num_rows, shares * launch.rows) * launch.rows
    weight_gradient_kernel[(shares, count, blocks)](
        grad,
        given,
        norm,
        weight,
        bias,
        num_rows,
        rows_each,
        grad.stride(0),
        given.stride(0),
        first,
        num_layers,
        A=outputs,
        C=inputs,
        BLOCK_A=block_a,
        BLOCK_C=block_c,
        ROWS=launch.rows,
        LAYER=layer,
        AFTER=after,
        STAGES=3,
        PRECISION=precision,
        num_warps=launch.warps,
        num_stages=1,
    )


def _kept(x: Tensor, sizes: Sizes, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Room for x and every normalised value, and for every 1 / standard deviation."""
    num_rows = x.shape[0] * x.shape[1]
    saved = x.new_empty(2 * sizes.num_layers + 1, num_rows, x.shape[2], dtype=dtype)
    return saved, x.new_empty(2 * sizes.num_layers, num_rows)


def _views(flat: Tensor, operands: Tensor, sizes: Sizes) -> list[Tensor]:
    """Where the first layer's parameters start: matrices among the operands, vectors in float32."""
    return [(operands if "weight" in name else flat)[start:] for name, start in sizes.starts.items()]


def _turned(operands: Tensor, sizes: Sizes) -> list[Tensor]:
    """The four matrices of every layer transposed, each at its place in a row like `operands`; bfloat16 needs none."""
    if operands.dtype == torch.bfloat16:
        return [operands] * 4
    embed, hidden, at = sizes.embed_dim, sizes.ff_dim, sizes.starts
    shapes = {"in_weight": (3 * embed, embed), "out_weight": (embed, embed)}
    shapes |= {"weight1": (hidden, embed), "weight2": (embed, hidden)}
    row = torch.empty_like(operands)
    parts = []
    for name, (rows, cols) in shapes.items():
        place = slice(at[name], at[name] + rows * cols)
        matrices = operands.view(-1, sizes.layer)[:, place].reshape(-1, rows, cols)
        row.view(-1, sizes.layer)[:, place] = matrices.transpose(1, 2).flatten(1)
        parts.append(row[at[name] :])
    return parts


def _as_bits(flags: list[bool]) -> int:
    return sum(1 << k for k, flag in enumerate(flags) if flag)


# -- for tracing: shapes without values --------------------------------------------------------------------------------


def fake_forward(x: Tensor, parameters: list[Tensor], num_heads: int, precision: str, save: bool) -> list[Tensor]:
    """Empty tensors like those `forward` returns."""
    sizes = Sizes.of(x, parameters, num_heads)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not save:
        return [out]
    dtype, num_floats = DTYPES[precision][0], sizes.num_layers * sizes.layer
    return [out, x.new_empty(num_floats), x.new_empty(num_floats, dtype=dtype), *_kept(x, sizes, dtype)]


def fake_backward(x: Tensor, parameters: list[Tensor]) -> list[Tensor]:
    """Empty tensors like those `backward` returns."""
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    return [grad_x, x.new_empty(sum(parameter.numel() for parameter in parameters))]
