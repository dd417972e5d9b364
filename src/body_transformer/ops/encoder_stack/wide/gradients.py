"""Gradients of wide layers' parameters: products batched over layers, and totals of the kernels' partial sums."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..packing import Layer
from .products import product
from .storage import Activations, Gradients

MAX_RUN_BYTES = 2**30
"""Limit on the gradients that are stored for the weights' products. All layers at once is fastest: 4.05 ms per step on
an H200, against 4.21 in runs of 4 layers and 4.77 in runs of one, which has too few tiles for the GPU. But memory grows
with the batch."""


class Stacks(NamedTuple):
    """The gradients of all parameters, float32, one tensor per kind for all layers."""

    in_weight: Tensor  # [L, 3E, E]
    out_weight: Tensor  # [L, E, E]
    weight1: Tensor  # [L, F, E]
    weight2: Tensor  # [L, E, F]
    in_bias: Tensor  # [L, 3E]
    bias1: Tensor  # [L, F]
    norms: Tensor  # [L, 2, 3, E] each LayerNorm's weight and bias, and the bias in the sum that it normalises

    @classmethod
    def empty(cls, parameters: Sequence[Tensor]) -> "Stacks":
        first = Layer(*parameters[: len(Layer._fields)])
        depth = len(parameters) // len(Layer._fields)
        alike = (first.in_weight, first.out_weight, first.weight1, first.weight2, first.in_bias, first.bias1)
        stacks = [source.new_empty((depth, *source.shape)) for source in alike]
        stacks.append(first.norm1.new_empty((depth, 2, 3, *first.norm1.shape)))
        return cls(*stacks)


def layers_at_once(kept: Activations) -> int:
    """Return the layers per run: all of them if their gradients fit in MAX_RUN_BYTES, else even shares."""
    depth = len(kept.x)
    rows = (kept.qkv, kept.x, kept.hidden, kept.x)
    whole = sum(tensor.numel() * tensor.element_size() for tensor in rows)
    runs = min(depth, max(1, -(-whole // MAX_RUN_BYTES)))
    return -(-depth // runs)


def add_run(stacks: Stacks, start: int, kept: Activations, gradients: Gradients) -> None:
    """Write the parameters' gradients of the layers from `start`, as many as `gradients` holds."""
    run = slice(start, min(start + len(gradients.qkv), len(kept.x)))
    here = slice(run.stop - start)
    for given, read, out in (
        (gradients.qkv, kept.x, stacks.in_weight),
        (gradients.update1, kept.heads, stacks.out_weight),
        (gradients.hidden, kept.y, stacks.weight1),
        (gradients.update2, kept.hidden, stacks.weight2),
    ):
        product(given[here].transpose(1, 2), read[run], out[run])
    torch.sum(gradients.qkv[here], 1, dtype=torch.float32, out=stacks.in_bias[run])
    torch.sum(gradients.hidden_sums[here], 1, out=stacks.bias1[run])
    torch.sum(gradients.norm_sums[here], 2, out=stacks.norms[run])


def parameter_gradients(stacks: Sequence[Tensor], parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return one gradient per parameter, in their order: views of the stacks that `backward` returns."""
    found = Stacks(*stacks)
    (*norm1, out_bias), (*norm2, bias2) = (norm.unbind(1) for norm in found.norms.unbind(1))
    attention = (found.in_weight, found.in_bias, found.out_weight, out_bias, *norm1)
    feed_forward = (found.weight1, found.bias1, found.weight2, bias2, *norm2)
    layers = zip(*(kind.unbind(0) for kind in (*attention, *feed_forward)), strict=True)
    gradients = (gradient for layer in layers for gradient in layer)
    return [gradient.view(parameter.shape) for gradient, parameter in zip(gradients, parameters, strict=True)]
