"""The forward and the backward pass: what is allocated, what is launched."""

import torch
from torch import Tensor

from ....sizes import num_blocks
from ..parameters import as_bits, pack, views
from ..sizes import Sizes
from .attention_gradient_kernel import attention_gradient_kernel
from .backward_kernel import backward_kernel
from .feed_forward_gradient_kernel import feed_forward_gradient_kernel
from .forward_kernel import forward_kernel
from .sizes import attention_constants, constants, feed_forward_constants, programs, shares

FACTOR_BYTES = 2 * 1024**3
"""Bound on the factors of weight gradients that are written down at a time; of one layer they may be more."""


def forward(
    x: Tensor, parameters: list[Tensor], mask: Tensor, masked: list[bool], sizes: Sizes, eps: float, save: bool
) -> list[Tensor]:
    """The output [B, N, E]; with `save` also what the backward pass needs: all parameters, the same as operands, x and
    every normalised value, every 1 / standard deviation."""
    flat, operands = pack(parameters, "bf16")
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    saved, rstd = _kept(x if save else x[:0], sizes)
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
    batch, num_rows, embed = len(grad_out), saved.shape[1], sizes.embed_dim
    grad = grad_out.contiguous()
    grad_x = torch.empty_like(grad)
    sums = flat.new_empty(shares(sizes, num_rows), sizes.num_layers, sizes.layer)
    places = dict(zip(sizes.starts, views(sums.view(-1), sums.view(-1), sizes), strict=True))
    given = dict(zip(sizes.starts, views(flat, operands, sizes), strict=True))

    def counts(constants: dict[str, int]) -> list[int]:
        """Rows, and rows of a share in whole tiles."""
        return [num_rows, num_blocks(num_rows, len(sums) * constants["ROWS"]) * constants["ROWS"]]

    last_norm = flat.new_empty(programs("backward", batch), 2 * embed)
    widths = (embed, 3 * embed, embed, embed)
    a_layer = sum(widths) * num_rows * operands.element_size()
    at_once = min(sizes.num_layers, max(1, FACTOR_BYTES // max(a_layer, 1)))
    mixed, grad_qkv, grad_sum1, grad_sum2 = (operands.new_empty(at_once, num_rows, width) for width in widths)
    for first in reversed(range(0, sizes.num_layers, at_once)):
        count = min(at_once, sizes.num_layers - first)
        backward_kernel[(programs("backward", batch),)](
            grad,
            saved,
            rstd,
            *given.values(),
            mask.contiguous(),
            grad_x,
            mixed,
            grad_qkv,
            grad_sum1,
            grad_sum2,
            last_norm,
            batch,
            first,
            count,
            sizes.num_layers,
            as_bits(masked),
            sizes.scale,
            **constants(sizes, "backward"),
        )
        grad = grad_x
        of_attention, of_feed_forward = attention_constants(sizes), feed_forward_constants(sizes)
        feed_forward_gradient_kernel[(len(sums), count)](
            grad_sum2,
            saved,
            *(given[name] for name in ("norm1", "weight1", "bias1", "weight2")),
            *(places[name] for name in ("weight1", "bias1", "weight2", "bias2", "norm1")),
            *counts(of_feed_forward),
            first,
            sizes.num_layers,
            **of_feed_forward,
        )
        attention_gradient_kernel[(len(sums), count)](
            grad_qkv,
            mixed,
            grad_sum1,
            saved,
            given["in_weight"],
            given["norm2"],
            *(places[name] for name in ("in_weight", "in_bias", "out_weight", "out_bias", "norm2")),
            *counts(of_attention),
            first,
            sizes.num_layers,
            **of_attention,
        )
    grads = sums.sum(0)
    torch.sum(last_norm, 0, out=grads[-1, sizes.starts["norm2"] :])
    return [grad_x, grads.view(-1)]


def _kept(x: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor]:
    """Room for x and every normalised value, and for every 1 / standard deviation."""
    num_rows = x.shape[0] * x.shape[1]
    saved = x.new_empty(1 + 2 * sizes.num_layers, num_rows, x.shape[2], dtype=torch.bfloat16)
    return saved, x.new_empty(2 * sizes.num_layers, num_rows)


def fake_forward(x: Tensor, sizes: Sizes) -> list[Tensor]:
    """For tracing: empty tensors like those that `forward` returns with `save`."""
    num_floats = sizes.num_layers * sizes.layer
    parameters = [x.new_empty(num_floats), x.new_empty(num_floats, dtype=torch.bfloat16)]
    return [torch.empty_like(x, memory_format=torch.contiguous_format), *parameters, *_kept(x, sizes)]
