"""The forward and the backward pass: allocations and launches."""

import torch
from torch import Tensor

from ...dispatch import num_blocks
from ..packing import Call, EncoderSizes, allocate_factors, allocate_saved, as_bits, pack
from .backward_kernel import backward_kernel
from .forward_kernel import forward_kernel
from .gradient_kernels import total_kernel, weight_gradient_kernel
from .sizes import TOTAL, constants, programs, shares, sum_constants, total_programs


def forward(x: Tensor, parameters: list[Tensor], call: Call, sizes: EncoderSizes, save: bool) -> list[Tensor]:
    """Return the output [B, N, E] and, with `save`, the tensors for the backward pass.

    These are all parameters in float32, all parameters as operands, x with the normalised values, and 1 / standard
    deviations.
    """
    flat, operands = pack(parameters, "bf16")
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    saved, rstd = allocate_saved(x if save else x[:0], sizes, torch.bfloat16, with_input=True)
    kernel = "forward" if save else "inference"
    forward_kernel[(programs(kernel, len(x)),)](
        x.contiguous(),
        flat,
        operands,
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
        **constants(sizes, kernel),
    )
    return [out, flat, operands, saved, rstd] if save else [out]


def backward(grad_out: Tensor, kept: list[Tensor], call: Call, sizes: EncoderSizes) -> list[Tensor]:
    """Return the gradients of x [B, N, E] and of all parameters in one row [L * layer_numel]."""
    flat, operands, saved, rstd = kept
    batch, num_rows, num_layers = len(grad_out), saved.shape[1], sizes.num_layers
    grad, mask = grad_out.contiguous(), call.mask.contiguous()
    grad_x = torch.empty_like(grad)
    factors = allocate_factors(operands, sizes, num_rows)
    at_once = len(factors[0])
    sums = Sums(flat, sizes, at_once, num_rows)
    last_norm = flat.new_empty(programs("backward", batch), 2 * sizes.embed_dim)
    for first in reversed(range(0, num_layers, at_once)):
        count = min(at_once, num_layers - first)
        backward_kernel[(len(last_norm),)](
            grad,
            saved,
            rstd,
            flat,
            operands,
            mask,
            grad_x,
            *factors,
            last_norm,
            batch,
            first,
            count,
            num_layers,
            as_bits(call.masked),
            sizes.scale,
            **constants(sizes, "backward"),
        )
        sums.add(factors, saved, flat, operands, first, count)
        grad = grad_x
    return [grad_x, sums.total(last_norm).view(-1)]


class Sums:
    """The gradients of all parameters as sums over shares of the rows.

    Attention and the feed-forward part have different numbers of shares. The gradient of a LayerNorm is computed with
    the part that follows it.
    """

    def __init__(self, flat: Tensor, sizes: EncoderSizes, at_once: int, num_rows: int) -> None:
        """Allocate the sums; `at_once` layers are summed per launch."""
        self.sizes, self.num_rows = sizes, num_rows
        self.attention, self.feed_forward = shares(sizes, at_once, num_rows)
        self.shares = flat.new_empty(max(self.attention, self.feed_forward), sizes.num_layers, sizes.layer_numel)

    def add(self, factors: list[Tensor], saved: Tensor, flat: Tensor, operands: Tensor, first: int, count: int) -> None:
        """Sum the gradients of `count` layers from `first` on, from the factors that the backward kernel stored."""
        of_kernel = sum_constants(self.sizes)
        weight_gradient_kernel[(self.attention + self.feed_forward, count)](
            *factors,
            saved,
            flat,
            operands,
            self.shares,
            self.num_rows,
            self.attention,
            self._rows_each(self.attention, of_kernel["ATTENTION_ROWS"]),
            self._rows_each(self.feed_forward, of_kernel["FF_ROWS"]),
            first,
            self.sizes.num_layers,
            **of_kernel,
        )

    def _rows_each(self, num_shares: int, tile: int) -> int:
        """Return the rows per share, in whole tiles."""
        return num_blocks(self.num_rows, num_shares * tile) * tile

    def total(self, last_norm: Tensor) -> Tensor:
        """Return the totals [L, layer]; `last_norm` [programs, 2 E] has the gradients of the last LayerNorm."""
        total, starts = torch.empty_like(self.shares[0]), self.sizes.starts
        total_kernel[(total_programs(self.sizes),)](
            self.shares,
            last_norm,
            total,
            total.numel(),
            self.attention,
            self.feed_forward,
            len(last_norm),
            LAYER_NUMEL=self.sizes.layer_numel,
            NORM1=starts["norm1"],
            NORM2=starts["norm2"],
            **TOTAL,
        )
        return total
