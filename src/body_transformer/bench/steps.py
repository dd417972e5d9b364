"""What a network is timed at: its forward pass, its gradients, a whole step of an optimiser."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .arithmetic import autocast, matmul_precision
from .stacks import Stack
from .timing import Step

Optimizer = type[torch.optim.Adam] | type[torch.optim.AdamW]


def forward_steps(stack: Stack, inputs: Sequence[Tensor], precision: str) -> list[Step]:
    """One step an input: the forward pass, nothing kept."""

    def step(x: Tensor) -> Tensor:
        with matmul_precision(precision), torch.no_grad(), autocast(precision, x.device.type):
            return stack.forward(x)

    return [_bound(step, x) for x in inputs]


def gradient_steps(stack: Stack, inputs: Sequence[Tensor], precision: str) -> list[Step]:
    """One step an input: forward, then the gradients of the input and of every parameter."""
    generator = torch.Generator(device=inputs[0].device).manual_seed(4)
    grad = torch.randn(inputs[0].shape, generator=generator, device=inputs[0].device)
    leaves = [x.detach().requires_grad_() for x in inputs]

    def step(x: Tensor) -> tuple[Tensor, ...]:
        with matmul_precision(precision):
            with autocast(precision, x.device.type):
                out = stack.forward(x)
            return torch.autograd.grad(out, (x, *stack.parameters), grad.to(out.dtype))

    return [_bound(step, x) for x in leaves]


def optimiser_steps(
    stack: Stack, inputs: Sequence[Tensor], targets: Sequence[Tensor], precision: str, kind: Optimizer
) -> list[Step]:
    """One step an input: forward, mean squared error, backward, the optimiser's fused update of all parameters."""
    on_gpu = inputs[0].is_cuda
    optimizer = kind(stack.parameters, lr=1e-5, fused=True, capturable=on_gpu)

    def step(x: Tensor, target: Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)  # so that gradients are made anew, inside a graph in its own memory
        with matmul_precision(precision):
            with autocast(precision, x.device.type):
                out = stack.forward(x)
            loss = F.mse_loss(out.float(), target)
            torch.autograd.backward(loss)
            optimizer.step()

    return [_bound(step, x, target) for x, target in zip(inputs, targets, strict=True)]


def _bound(step: Callable[..., object], *inputs: Tensor) -> Step:
    return lambda: step(*inputs)
