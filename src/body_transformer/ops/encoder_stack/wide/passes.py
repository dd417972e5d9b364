"""The forward and the backward pass of a wide encoder."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...body_attention import tile
from ..packing import OPERANDS, Call
from .gradients import add_run, empty_stacks, layers_at_once
from .products import float32_products, linear, linear_relu, product
from .rows import NORM_BACKWARD, RELU_BACKWARD, Stream, add_norm, norm_backward, relu_backward
from .storage import LAYER_SIZE, Activations, Gradients, Operands, layers


@torch.no_grad()
def forward(x: Tensor, parameters: Sequence[Tensor], call: Call, save: bool) -> list[Tensor]:
    """Return the output [B, N, E] float32 and, with `save`, the tensors for the backward pass.

    x is [B, N, E] float32, with any strides.
    """
    out, *tensors = _allocate(x, parameters, call.precision, len(call.masked) if save else 1)
    stack, (operands, kept) = layers(parameters), _unpack(tensors)
    operands.fill(stack)
    depth, rows = len(kept.x), x.contiguous().view(-1, x.shape[2])
    attention = PackedAttention(x, call)
    kept.x[0].copy_(rows)
    update = torch.empty_like(kept.x[0])
    rest = None if update.dtype == torch.float32 else torch.empty_like(update)
    stream = Stream(rows, None)
    with float32_products(call.precision):
        for index, (layer, operand) in enumerate(zip(stack, operands.by_layer(), strict=True)):
            slot = index % depth
            norm1, norm2 = (kept.norm(slot, which) if save else None for which in (0, 1))
            linear(kept.x[slot], operand.in_weight, operand.in_bias, kept.qkv[slot])
            attention.forward(kept.qkv[slot], call.masked[index], kept.heads[slot])
            product(kept.heads[slot], operand.out_weight.t(), update)
            y = Stream(kept.y[slot], rest)
            add_norm(update, layer.out_bias, stream, layer.norm1, layer.shift1, y, norm1, call.eps)
            linear_relu(kept.y[slot], operand.weight1, operand.bias1, kept.hidden[slot])
            product(kept.hidden[slot], operand.weight2.t(), update)
            last = index == len(stack) - 1
            stream = Stream(out.view(rows.shape), None) if last else Stream(kept.x[(index + 1) % depth], rest)
            add_norm(update, layer.bias2, y, layer.norm2, layer.shift2, stream, norm2, call.eps)
    return [out, *tensors] if save else [out]


@torch.no_grad()
def backward(
    grad_out: Tensor, saved: Sequence[Tensor], x: Tensor, parameters: Sequence[Tensor], call: Call
) -> list[Tensor]:
    """Return the gradient of x, [B, N, E] float32, and the parameters' gradients as `empty_stacks` describes them.

    `grad_out` is [B, N, E] float32, with any strides. `saved` are the tensors that `forward` returned after its output.
    """
    stack, (operands, kept), stacks = layers(parameters), _unpack(saved), empty_stacks(parameters)
    by_layer = operands.by_layer()
    attention, run = PackedAttention(x, call), layers_at_once(kept)
    gradients = _empty_gradients(run, kept)
    through = torch.empty_like(kept.x[0])  # gradient through a product, added to that of the residual path
    heads = torch.empty_like(through)
    first, second = grad_out.contiguous().view(-1, x.shape[2]), None
    grad_x = torch.empty_like(first)
    with float32_products(call.precision):
        for index in reversed(range(len(stack))):
            layer, operand, slot = stack[index], by_layer[index], index % run
            qkv, update1, hidden, update2, norm_sums, hidden_sums = (kind[slot] for kind in gradients)
            norm_backward(first, second, kept.norm(index, 1), layer.norm2, update2, norm_sums[1])
            product(update2, operand.weight2, hidden)
            relu_backward(hidden, kept.hidden[index], hidden_sums)
            product(hidden, operand.weight1, through)
            norm_backward(through, update2, kept.norm(index, 0), layer.norm1, update1, norm_sums[0])
            product(update1, operand.out_weight, heads)
            attention.backward(kept.qkv[index], call.masked[index], heads, qkv)
            if index > 0:
                product(qkv, operand.in_weight, through)
                first, second = through, update1
            if slot == 0:
                add_run(stacks, index, kept, gradients)
        product(gradients.qkv[0], by_layer[0].in_weight, grad_x)
    return [grad_x.add_(gradients.update1[0]).view(x.shape), *stacks]


def _empty_gradients(depth: int, kept: Activations) -> Gradients:
    _, num_rows, hidden = kept.hidden.shape
    norm_sums = NORM_BACKWARD.partials(num_rows, kept.x.shape[2])
    return Gradients.empty(depth, kept, norm_sums, RELU_BACKWARD.partials(num_rows, hidden))


def _allocate(x: Tensor, parameters: Sequence[Tensor], precision: str, depth: int) -> list[Tensor]:
    """Allocate the output, the operands of all layers, and `Activations` of `depth` layers."""
    operands = Operands.empty(parameters, OPERANDS[precision])
    kept = Activations.empty(depth, x, operands.bias1.shape[1], OPERANDS[precision])
    return [x.new_empty(x.shape), *operands, *kept]


def _unpack(saved: Sequence[Tensor]) -> tuple[Operands, Activations]:
    """Return the tensors that `_allocate` returned after the output."""
    count = len(Operands._fields)
    return Operands(*saved[:count]), Activations(*saved[count:])


# -- for tracing: shapes without values --------------------------------------------------------------------------------


def fake_forward(x: Tensor, parameters: Sequence[Tensor], num_heads: int, precision: str, save: bool) -> list[Tensor]:
    """Return empty tensors like those of `forward`."""
    return _allocate(x, parameters, precision, len(parameters) // LAYER_SIZE) if save else [x.new_empty(x.shape)]


def fake_backward(x: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return empty tensors like those of `backward`."""
    return [x.new_empty(x.shape), *empty_stacks(parameters)]


# -- attention ---------------------------------------------------------------------------------------------------------

TILE_PRECISION = {"bf16": None, "tf32": "tf32", "fp32": "ieee"}
"""Precision -> its name in `tile.forward`."""


class PackedAttention:
    """Attention of heads packed in [M, 3E], with one row per token: M = B * N."""

    def __init__(self, x: Tensor, call: Call) -> None:
        batch, num_nodes, width = x.shape
        self.shape = (batch, num_nodes, -1, call.num_heads, width // call.num_heads)
        self.mask, self.precision = call.mask, TILE_PRECISION[call.precision]

    def forward(self, qkv: Tensor, masked: bool, out: Tensor) -> None:
        """Write the attention of [M, 3E] to `out` [M, E]."""
        q, k, v = self._heads(qkv)
        (out_heads,) = self._heads(out)
        tile.forward(q, k, v, self.mask if masked else None, None, out_heads, self.precision)

    def backward(self, qkv: Tensor, masked: bool, grad_out: Tensor, out: Tensor) -> None:
        """Write the gradient of `qkv` to `out` [M, 3E], from that of the forward pass's result [M, E]."""
        q, k, v = self._heads(qkv)
        dq, dk, dv = self._heads(out)
        (gradient,) = self._heads(grad_out)
        tile.backward(q, k, v, self.mask if masked else None, None, gradient, dq, dk, dv, self.precision)

    def _heads(self, packed: Tensor) -> tuple[Tensor, ...]:
        """Return k views [B, H, N, D] of a packed tensor [M, k E]."""
        return packed.view(self.shape).permute(2, 0, 3, 1, 4).unbind(0)
