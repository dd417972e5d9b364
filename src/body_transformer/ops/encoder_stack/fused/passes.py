"""The forward and the backward pass: allocations and launches."""

import torch
from torch import Tensor

from ...assembler import sound_assembler
from ..hopper.sizes import takes
from ..packing import OPERANDS, Call, allocate_saved, as_bits, pack, views
from .backward_kernel import backward_kernel
from .forward_kernel import forward_kernel
from .sizes import SAVED, FusedSizes
from .weight_gradients import WeightGradients


@sound_assembler()
def forward(x: Tensor, parameters: list[Tensor], call: Call, save: bool) -> list[Tensor]:
    """Return the output [B, N, E] and, with `save`, the tensors for the backward pass.

    These are all parameters, the same as operands, the normalised values, and the 1 / standard deviations.
    """
    sizes, precision = FusedSizes.of(x, parameters, call.num_heads), call.precision
    if takes(sizes, precision, x.device):
        from ..hopper import passes as hopper  # imports Gluon

        return hopper.forward(x, parameters, call, sizes, save)
    flat, operands = pack(parameters, precision)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    saved, rstd = allocate_saved(x if save else x[:0], sizes, SAVED[precision], with_input=False)
    kernel = "forward" if save else "inference"
    forward_kernel[(sizes.programs(kernel, precision, len(x)),)](
        x.contiguous(),
        *views(flat, operands, sizes),
        call.mask.contiguous(),
        out,
        saved,
        rstd,
        len(x),
        sizes.num_layers,
        as_bits(call.masked),
        sizes.scale,
        call.eps,
        SAVE=save,
        **sizes.constants(kernel, precision),
    )
    return [out, flat, operands, saved, rstd] if save else [out]


@sound_assembler()
def backward(grad_out: Tensor, kept: list[Tensor], x: Tensor, parameters: list[Tensor], call: Call) -> list[Tensor]:
    """Return the gradients of x [B, N, E] and of all parameters in one row [L * layer]."""
    sizes, precision = FusedSizes.of(x, parameters, call.num_heads), call.precision
    if takes(sizes, precision, x.device):
        from ..hopper import passes as hopper

        return hopper.backward(grad_out, kept, call, sizes)
    flat, operands, saved, rstd = kept
    embed_dim = sizes.embed_dim
    programs = sizes.programs("backward", precision, len(x))
    norm_sums = flat.new_empty(programs, sizes.num_layers, 4 * embed_dim)
    grad, x = grad_out.contiguous(), x.contiguous()
    grad_x = torch.empty_like(grad)
    gradients = WeightGradients(x, flat, operands, saved, sizes, precision)
    turned = _turned(operands, sizes)
    for first in reversed(range(0, sizes.num_layers, gradients.num_layers)):
        count = min(gradients.num_layers, sizes.num_layers - first)
        backward_kernel[(programs,)](
            grad,
            x,
            saved,
            rstd,
            *views(flat, operands, sizes),
            *turned,
            call.mask.contiguous(),
            grad_x,
            *gradients.factors,
            norm_sums,
            len(x),
            first,
            count,
            sizes.num_layers,
            as_bits(call.masked),
            sizes.scale,
            TURNED=turned[0] is not operands,
            **sizes.constants("backward", precision),
        )
        gradients.multiply(first, count)
        grad = grad_x
    grads, norms, at = gradients.total(), norm_sums.sum(0), sizes.starts
    grads[:, at["norm1"] : at["weight1"]] = norms[:, : 2 * embed_dim]
    grads[:, at["norm2"] :] = norms[:, 2 * embed_dim :]
    return [grad_x, grads.view(-1)]


def _turned(operands: Tensor, sizes: FusedSizes) -> list[Tensor]:
    """Return the four matrices of every layer transposed, at their places in a row; bfloat16 needs no transpose."""
    if operands.dtype == torch.bfloat16:
        return [operands] * 4
    row = torch.empty_like(operands)
    parts = []
    for name in ("in_weight", "out_weight", "weight1", "weight2"):
        (rows, cols), start = sizes.shapes[name], sizes.starts[name]
        place = slice(start, start + rows * cols)
        matrices = operands.view(-1, sizes.layer)[:, place].reshape(-1, rows, cols)
        row.view(-1, sizes.layer)[:, place] = matrices.transpose(1, 2).flatten(1)
        parts.append(row[start:])
    return parts


# -- for tracing: shapes without values --------------------------------------------------------------------------------


def fake_forward(x: Tensor, parameters: list[Tensor], num_heads: int, precision: str, save: bool) -> list[Tensor]:
    """Return empty tensors like those of `forward`."""
    sizes = FusedSizes.of(x, parameters, num_heads)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not save:
        return [out]
    num_floats = sizes.num_layers * sizes.layer
    operands = x.new_empty(num_floats, dtype=OPERANDS[precision])
    kept = allocate_saved(x, sizes, SAVED[precision], with_input=takes(sizes, precision, x.device))
    return [out, x.new_empty(num_floats), operands, *kept]


def fake_backward(x: Tensor, parameters: list[Tensor]) -> list[Tensor]:
    """Return empty tensors like those of `backward`."""
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    return [grad_x, x.new_empty(sum(parameter.numel() for parameter in parameters))]
