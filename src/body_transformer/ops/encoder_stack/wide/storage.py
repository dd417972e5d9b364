"""Parameters, saved activations and gradients of the wide passes, each kind of tensor for many layers in one piece.

With one piece per kind, the weight gradients of many layers are one batched product.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..packing import Layer

ALIGNMENT = 64  # entries: fast library products need matrices aligned to 16 bytes, and prefer 128


class Operands(NamedTuple):
    """The parameters of a layer that are operands of matrix products, in the operands' dtype."""

    in_weight: Tensor
    out_weight: Tensor
    weight1: Tensor
    weight2: Tensor
    in_bias: Tensor
    bias1: Tensor


def layers(parameters: Sequence[Tensor]) -> list[Layer[Tensor]]:
    """Group the flat list of parameters by layer."""
    size = len(Layer._fields)
    flat = [parameter.contiguous() for parameter in parameters]
    return [Layer(*flat[start : start + size]) for start in range(0, len(flat), size)]


def empty_operands(stack: list[Layer[Tensor]], dtype: torch.dtype) -> Tensor:
    """Allocate the operands of all layers in one flat tensor."""
    size = sum(_aligned(getattr(layer, name).numel()) for layer in stack for name in Operands._fields)
    return stack[0].in_weight.new_empty(size, dtype=dtype)


def fill_operands(flat: Tensor, stack: list[Layer[Tensor]]) -> list[Operands]:
    """Copy all parameters into `flat` in one pass; return views of them there."""
    views = operand_views(flat, stack)
    sources = [getattr(layer, name) for layer in stack for name in Operands._fields]
    torch._foreach_copy_([view for layer in views for view in layer], sources)
    return views


def operand_views(flat: Tensor, stack: list[Layer[Tensor]]) -> list[Operands]:
    """Return views of each layer's operands in `flat`."""
    start, views = 0, []
    for layer in stack:
        found = []
        for name in Operands._fields:
            shape = getattr(layer, name).shape
            found.append(flat[start : start + shape.numel()].view(shape))
            start += _aligned(shape.numel())
        views.append(Operands(*found))
    return views


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class Norm(NamedTuple):
    """Values of a LayerNorm for its backward pass: the normalised rows [M, E] and 1 / standard deviation [M]."""

    rows: Tensor
    scale: Tensor


class Activations(NamedTuple):
    """Activations for the backward pass: M rows (tokens) per layer, L layers."""

    x: Tensor  # [L, M, E] input of a layer
    qkv: Tensor  # [L, M, 3E]
    heads: Tensor  # [L, M, E] the attention's output
    y: Tensor  # [L, M, E] after the first LayerNorm
    hidden: Tensor  # [L, M, F] after the ReLU
    normal: Tensor  # [L, 2, M, E] rows normalised by the LayerNorms, without weight and bias
    scale: Tensor  # [L, 2, M] float32, 1 / standard deviations

    @classmethod
    def empty(cls, depth: int, x: Tensor, hidden: int, dtype: torch.dtype) -> "Activations":
        """Allocate `depth` layers for an input x [B, N, E]; one is enough without a backward pass."""
        num_rows, width = x.shape[0] * x.shape[1], x.shape[2]
        widths = (width, 3 * width, width, width, hidden)
        tensors = [x.new_empty((depth, num_rows, size), dtype=dtype) for size in widths]
        tensors.append(x.new_empty((depth, 2, num_rows, width), dtype=dtype))
        tensors.append(x.new_empty((depth, 2, num_rows), dtype=torch.float32))
        return cls(*tensors)

    def norm(self, index: int, which: int) -> Norm:
        """Return the values of a layer's first or second LayerNorm: `which` is 0 or 1."""
        return Norm(self.normal[index, which], self.scale[index, which])


class Gradients(NamedTuple):
    """Gradients of a layer's activations, in the operands' dtype, and partial column sums for its vectors.

    They are for a run of R layers, with P and Q partial sums.
    """

    qkv: Tensor  # [R, M, 3E]
    update1: Tensor  # [R, M, E] of the attention's update to the residual stream
    hidden: Tensor  # [R, M, F] before the ReLU
    update2: Tensor  # [R, M, E] of the feed-forward part's update
    norm_sums: Tensor  # [R, 2, P, 3, E] float32
    hidden_sums: Tensor  # [R, Q, F] float32

    @classmethod
    def empty(cls, depth: int, kept: Activations, norm_sums: int, hidden_sums: int) -> "Gradients":
        """Allocate `depth` layers."""
        sources = (kept.qkv, kept.x, kept.hidden, kept.x)
        tensors = [source.new_empty((depth, *source.shape[1:])) for source in sources]
        tensors.append(kept.scale.new_empty((depth, 2, norm_sums, 3, kept.x.shape[2])))
        tensors.append(kept.scale.new_empty((depth, hidden_sums, kept.hidden.shape[2])))
        return cls(*tensors)
