"""Parameters, saved activations and gradients of the wide passes: one tensor per kind for many layers.

The weight gradients of many layers are therefore one batched product.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from ..packing import Layer

LAYER_SIZE = len(Layer._fields)


class Operands(NamedTuple):
    """The parameters that are operands of matrix products, or their gradients: one tensor per kind for all layers."""

    in_weight: Tensor  # [L, 3E, E]
    out_weight: Tensor  # [L, E, E]
    weight1: Tensor  # [L, F, E]
    weight2: Tensor  # [L, E, F]
    in_bias: Tensor  # [L, 3E]
    bias1: Tensor  # [L, F]

    @classmethod
    def empty(cls, parameters: Sequence[Tensor], dtype: torch.dtype) -> Self:
        first, depth = Layer(*parameters[:LAYER_SIZE]), len(parameters) // LAYER_SIZE
        alike = [getattr(first, name) for name in cls._fields]
        return cls(*(like.new_empty((depth, *like.shape), dtype=dtype) for like in alike))

    def by_layer(self) -> list["Operands"]:
        """Return views of each layer's operands."""
        return [Operands(*views) for views in zip(*(kind.unbind(0) for kind in self), strict=True)]

    def fill(self, stack: list[Layer[Tensor]]) -> None:
        """Copy the parameters of all layers in one pass."""
        views = [view for layer in self.by_layer() for view in layer]
        torch._foreach_copy_(views, [getattr(layer, name) for layer in stack for name in self._fields])


def layers(parameters: Sequence[Tensor]) -> list[Layer[Tensor]]:
    """Group the flat list of parameters by layer."""
    flat = [parameter.contiguous() for parameter in parameters]
    return [Layer(*flat[start : start + LAYER_SIZE]) for start in range(0, len(flat), LAYER_SIZE)]


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
    """Gradients of R layers' activations in the operands' dtype, and P or Q partial sums of the vectors' gradients."""

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
