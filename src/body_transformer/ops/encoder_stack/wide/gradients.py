"""Gradients of wide layers' parameters: products batched over layers, and totals of the kernels' partial sums."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .products import product
from .storage import Activations, Gradients, Operands

MAX_RUN_BYTES = 2**30
"""Limit on the gradients that are stored for the products of weight gradients. All layers at once is fastest: 4.05 ms
per step on an H200. Runs of 4 layers take 4.21, and runs of one take 4.77, since one layer has too few tiles for the
GPU. But memory grows with the batch."""


def empty_stacks(parameters: Sequence[Tensor]) -> list[Tensor]:
    """Allocate the gradients of all parameters, float32: `Operands`, and those of the LayerNorms [L, 2, 3, E].

    The axis of 3 is a LayerNorm's weight, its bias, and the bias in the sum that it normalises.
    """
    operands = Operands.empty(parameters, torch.float32)
    depth, _, width = operands.out_weight.shape
    return [*operands, operands.out_weight.new_empty((depth, 2, 3, width))]


def layers_at_once(kept: Activations) -> int:
    """Return the number of layers per run: all if their gradients fit in MAX_RUN_BYTES, else even shares."""
    depth = len(kept.x)
    rows = (kept.qkv, kept.x, kept.hidden, kept.x)
    whole = sum(tensor.numel() * tensor.element_size() for tensor in rows)
    runs = min(depth, max(1, -(-whole // MAX_RUN_BYTES)))
    return -(-depth // runs)


def add_run(stacks: Sequence[Tensor], start: int, kept: Activations, gradients: Gradients) -> None:
    """Write the parameters' gradients of the layers from `start` on, for as many layers as `gradients` holds."""
    *kinds, norms = stacks
    found = Operands(*kinds)
    run = slice(start, min(start + len(gradients.qkv), len(kept.x)))
    here = slice(run.stop - start)
    for given, read, out in (
        (gradients.qkv, kept.x, found.in_weight),
        (gradients.update1, kept.heads, found.out_weight),
        (gradients.hidden, kept.y, found.weight1),
        (gradients.update2, kept.hidden, found.weight2),
    ):
        product(given[here].transpose(1, 2), read[run], out[run])
    torch.sum(gradients.qkv[here], 1, dtype=torch.float32, out=found.in_bias[run])
    torch.sum(gradients.hidden_sums[here], 1, out=found.bias1[run])
    torch.sum(gradients.norm_sums[here], 2, out=norms[run])


def parameter_gradients(stacks: Sequence[Tensor], parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return one gradient per parameter, in their order: views of the stacks that `backward` returns."""
    *kinds, norms = stacks
    found = Operands(*kinds)
    (*norm1, out_bias), (*norm2, bias2) = (norm.unbind(1) for norm in norms.unbind(1))
    attention = (found.in_weight, found.in_bias, found.out_weight, out_bias, *norm1)
    feed_forward = (found.weight1, found.bias1, found.weight2, bias2, *norm2)
    layers = zip(*(kind.unbind(0) for kind in (*attention, *feed_forward)), strict=True)
    gradients = (gradient for layer in layers for gradient in layer)
    return [gradient.view(parameter.shape) for gradient, parameter in zip(gradients, parameters, strict=True)]
