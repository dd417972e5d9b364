"""Shapes of an encoder, its parameters in one row as the fused kernels read them, and buffers between passes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Generic, NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from ..dispatch import padded
from .reference import PARAMETERS

T = TypeVar("T")

OPERANDS = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
"""Precision -> dtype of the products' operands."""


class Call(NamedTuple):
    """The arguments that the forward and the backward pass share, besides x and the parameters."""

    mask: Tensor
    """[N, N] bool, True = may attend."""
    masked: list[bool]
    """Whether each layer uses the mask."""
    num_heads: int
    eps: float
    precision: str
    """A key of OPERANDS."""


class Layer(NamedTuple, Generic[T]):
    """A value per parameter of a layer, in the order of `PARAMETERS`."""

    in_weight: T
    in_bias: T
    out_weight: T
    out_bias: T
    norm1: T
    shift1: T
    weight1: T
    bias1: T
    weight2: T
    bias2: T
    norm2: T
    shift2: T


def layer_shapes(embed_dim: int, ff_dim: int) -> Layer[tuple[int, ...]]:
    """Return the shapes of a layer's parameters."""
    e, f = embed_dim, ff_dim
    return Layer((3 * e, e), (3 * e,), (e, e), (e,), (e,), (e,), (f, e), (f,), (e, f), (e,), (e,), (e,))


@dataclass(frozen=True)
class EncoderSizes:
    """The shapes of one encoder."""

    num_layers: int
    num_nodes: int
    embed_dim: int
    ff_dim: int
    num_heads: int

    @classmethod
    def of(cls, x: Tensor, parameters: Sequence[Tensor], num_heads: int) -> Self:
        ff_dim = parameters[PARAMETERS.index("linear1.weight")].shape[0]
        return cls(len(parameters) // len(PARAMETERS), x.shape[1], x.shape[2], ff_dim, num_heads)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name of a parameter, as in `Layer` -> its shape."""
        return layer_shapes(self.embed_dim, self.ff_dim)._asdict()

    @cached_property
    def starts(self) -> dict[str, int]:
        """Start of each parameter within its layer's part of the row."""
        ends = accumulate(prod(shape) for shape in self.shapes.values())
        return dict(zip(self.shapes, (0, *ends), strict=False))

    @cached_property
    def layer_numel(self) -> int:
        """Number of parameters of one layer."""
        return sum(prod(shape) for shape in self.shapes.values())

    @property
    def scale(self) -> float:
        """Scale of the attention's scores."""
        return float((self.embed_dim // self.num_heads) ** -0.5)

    @property
    def padded_nodes(self) -> int:
        return padded(self.num_nodes, least=16)


def pack(parameters: list[Tensor], precision: str) -> tuple[Tensor, Tensor]:
    """Concatenate all parameters into one row [L * layer_numel]: in float32, and as the products' operands."""
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
    if precision == "bf16":
        return flat, flat.to(torch.bfloat16)
    if precision == "tf32":  # round to the nearest, as `tiles.operand` does: the matrix units truncate
        rounded = ((flat.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)
        return flat, torch.where(flat.isnan(), flat, rounded)
    return flat, flat.clone()


def views(flat: Tensor, operands: Tensor, sizes: EncoderSizes) -> list[Tensor]:
    """Return a view per parameter, from its place in the first layer to the end of the row.

    Matrices are views of the operands, vectors of the float32 row. A LayerNorm's weight and bias share a view.
    """
    starts = {name: start for name, start in sizes.starts.items() if not name.startswith("shift")}
    return [(operands if "weight" in name else flat)[start:] for name, start in starts.items()]


def as_bits(flags: list[bool]) -> int:
    """Return the flags as bits: bit k is flags[k]."""
    return sum(1 << k for k, flag in enumerate(flags) if flag)


def allocate_saved(x: Tensor, sizes: EncoderSizes, dtype: torch.dtype, with_input: bool) -> tuple[Tensor, Tensor]:
    """Allocate the saved tensors: normalised values, after x if `with_input`, and 1 / standard deviations."""
    num_values, num_rows = 2 * sizes.num_layers, x.shape[0] * x.shape[1]
    saved = x.new_empty(num_values + with_input, num_rows, x.shape[2], dtype=dtype)
    return saved, x.new_empty(num_values, num_rows)


FACTOR_BYTES = 2 * 1024**3
"""Limit on the bytes of the stored factors of weight gradients. The factors of a single layer may exceed it."""


def allocate_factors(operands: Tensor, sizes: EncoderSizes, num_rows: int) -> list[Tensor]:
    """Allocate the factors of the weight gradients, [layers, B * N, width] each, for as many layers as fit.

    The first holds the attention-weighted values ("mixed"). The others hold the gradients of queries, keys and values,
    of the sum before the first LayerNorm, and of the sum before the second.
    """
    widths = [sizes.embed_dim * count for count in (1, 3, 1, 1)]
    layer_bytes = sum(widths) * num_rows * operands.element_size()
    num_layers = min(sizes.num_layers, max(1, FACTOR_BYTES // max(layer_bytes, 1)))
    return [operands.new_empty(num_layers, num_rows, width) for width in widths]


def parameter_gradients(stacks: list[Tensor], parameters: list[Tensor]) -> list[Tensor]:
    """Split the row of all gradients into one view per parameter."""
    parts = torch.split(stacks[0], [parameter.numel() for parameter in parameters])
    return [part.view_as(parameter) for part, parameter in zip(parts, parameters, strict=True)]
