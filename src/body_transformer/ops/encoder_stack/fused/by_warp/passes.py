"""The forward and the backward pass: what is allocated, what is launched."""

import torch
from torch import Tensor

from ....sizes import num_blocks
from ..parameters import as_bits, pack, room_for_factors, room_for_kept, views
from ..sizes import Sizes
from .attention_gradient_kernel import attention_gradient_kernel
from .backward_kernel import backward_kernel
from .feed_forward_gradient_kernel import feed_forward_gradient_kernel
from .forward_kernel import forward_kernel
from .sizes import attention_constants, constants, feed_forward_constants, programs, shares


def forward(
    x: Tensor, parameters: list[Tensor], mask: Tensor, masked: list[bool], sizes: Sizes, eps: float, save: bool
) -> list[Tensor]:
    """The output [B, N, E]; with `save` also what the backward pass needs: all parameters, the same as operands, x and
    every normalised value, every 1 / standard deviation."""
    flat, operands = pack(parameters, "bf16")
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    saved, rstd = room_for_kept(x if save else x[:0], sizes, torch.bfloat16, with_input=True)
    kernel = "forward" if save else "inference"
    forward_kernel[(programs(kernel, len(x)),)](
        x.contiguous(),
        *views(flat, operands, sizes),
        mask.contiguous(),
        out,
        saved,
        rstd,
        len(x),
        sizes.num_layers,
        as_bits(masked),
        sizes.scale,
        eps,
        SAVE=save,
        **constants(sizes, kernel),
    )
    return [out, flat, operands, saved, rstd] if save else [out]


def backward(grad_out: Tensor, kept: list[Tensor], mask: Tensor, masked: list[bool], sizes: Sizes) -> list[Tensor]:
    """The gradients of x [B, N, E] and of all parameters in one row, [L * layer]."""
    flat, operands, saved, rstd = kept
    batch, num_rows, num_layers = len(grad_out), saved.shape[1], sizes.num_layers
    grad, mask = grad_out.contiguous(), mask.contiguous()
    grad_x = torch.empty_like(grad)
    factors = room_for_factors(operands, sizes, num_rows)
    at_once = len(factors[0])
    sums = flat.new_empty(shares(sizes, at_once, num_rows), num_layers, sizes.layer)
    last_norm = flat.new_empty(programs("backward", batch), 2 * sizes.embed_dim)
    given = dict(zip(sizes.starts, views(flat, operands, sizes), strict=True))
    for first in reversed(range(0, num_layers, at_once)):
        count = min(at_once, num_layers - first)
        backward_kernel[(len(last_norm),)](
            grad,
            saved,
            rstd,
            *given.values(),
            mask,
            grad_x,
            *factors,
            last_norm,
            batch,
            first,
            count,
            num_layers,
            as_bits(masked),
            sizes.scale,
            **constants(sizes, "backward"),
        )
        _sum_up(factors, saved, given, sums, sizes, first, count)
        grad = grad_x
    grads = sums.sum(0)
    torch.sum(last_norm, 0, out=grads[-1, sizes.starts["norm2"] :])
    return [grad_x, grads.view(-1)]


def _sum_up(
    factors: list[Tensor],
    saved: Tensor,
    given: dict[str, Tensor],
    sums: Tensor,
    sizes: Sizes,
    first: int,
    count: int,
) -> None:
    """The gradients of the weights of `count` layers from `first` on, and of the LayerNorms before their parts."""
    mixed, grad_qkv, grad_sum1, grad_sum2 = factors
    num_shares, num_rows = len(sums), saved.shape[1]
    places = dict(zip(sizes.starts, views(sums.view(-1), sums.view(-1), sizes), strict=True))

    def counts(rows: int) -> list[int]:
        """Rows, rows of a share in whole tiles of `rows`, the first layer, all layers."""
        return [num_rows, num_blocks(num_rows, num_shares * rows) * rows, first, sizes.num_layers]

    of_attention, of_feed_forward = attention_constants(sizes), feed_forward_constants(sizes)
    attention_gradient_kernel[(num_shares, count)](
        grad_qkv,
        mixed,
        grad_sum1,
        saved,
        given["in_weight"],
        given["norm2"],
        *(places[name] for name in ("in_weight", "in_bias", "out_weight", "out_bias", "norm2")),
        *counts(of_attention["ROWS"]),
        **of_attention,
    )
    feed_forward_gradient_kernel[(num_shares, count)](
        grad_sum2,
        saved,
        *(given[name] for name in ("norm1", "weight1", "bias1", "weight2")),
        *(places[name] for name in ("weight1", "bias1", "weight2", "bias2", "norm1")),
        *counts(of_feed_forward["ROWS"]),
        **of_feed_forward,
    )
