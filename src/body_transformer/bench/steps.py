"""Timed steps of a network, their precision, and the operators and kernels that ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .clocks import Step

Optimizer = type[torch.optim.Adam] | type[torch.optim.AdamW]
MatmulPrecision = Literal["highest", "high"]


# -- precision ---------------------------------------------------------------------------------------------------------


MATMUL_PRECISION: Mapping[str, MatmulPrecision] = {"bf16": "high", "tf32": "high", "fp32": "highest"}
"""Precision -> argument of `torch.set_float32_matmul_precision`; in bf16, the forward pass also runs under autocast."""
ON_DEVICE = {"cuda": ("bf16", "tf32"), "cpu": ("fp32",)}
"""Precisions timed per device: a CPU has no tf32, and few have bf16."""


@contextmanager
def matmul_precision(name: str) -> Iterator[None]:
    """Set the precision for a whole step: the backward pass reads it too."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(MATMUL_PRECISION[name])
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def autocast(name: str, device: str) -> torch.autocast:
    """Return autocast for the forward pass; its weight cache is off, since a CUDA graph must not keep it."""
    return torch.autocast(device, torch.bfloat16, enabled=name == "bf16", cache_enabled=False)


# -- steps -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TimedModel:
    """An attention, an encoder or a policy as a function, with its trainable parameters."""

    forward: Callable[..., Tensor]
    parameters: Sequence[Tensor] = ()


def forward(model: TimedModel, inputs: Sequence[Tensor], precision: str) -> Tensor:
    """Compute the output without gradients."""
    with matmul_precision(precision), torch.no_grad(), autocast(precision, inputs[0].device.type):
        return model.forward(*inputs)


def output_and_gradients(
    model: TimedModel, inputs: Sequence[Tensor], grad: Tensor, precision: str
) -> tuple[Tensor, ...]:
    """Return the output, then the gradients of the inputs (which are leaves) and of every parameter."""
    with matmul_precision(precision):
        with autocast(precision, grad.device.type):
            out = model.forward(*inputs)
        return out, *torch.autograd.grad(out, (*inputs, *model.parameters), grad.to(out.dtype))


def gradients(model: TimedModel, inputs: Sequence[Tensor], grad: Tensor, precision: str) -> tuple[Tensor, ...]:
    """Return the gradients of the inputs and of every parameter."""
    return output_and_gradients(model, inputs, grad, precision)[1:]


def forward_steps(model: TimedModel, inputs: Sequence[Tensor], precision: str) -> list[Step]:
    """Return one step per input: the forward pass without gradients."""
    return [partial(forward, model, (x,), precision) for x in inputs]


def gradient_steps(model: TimedModel, inputs: Sequence[Tensor], precision: str) -> list[Step]:
    """Return one step per input: the forward pass, then the gradients of the input and of every parameter."""
    generator = torch.Generator(device=inputs[0].device).manual_seed(4)
    grad = torch.randn(inputs[0].shape, generator=generator, device=inputs[0].device)
    return [partial(gradients, model, (x.detach().requires_grad_(),), grad, precision) for x in inputs]


def optimizer_steps(
    model: TimedModel, inputs: Sequence[Tensor], targets: Sequence[Tensor], precision: str, kind: Optimizer
) -> list[Step]:
    """Return one step per input: forward, mean squared error, backward, the optimizer's fused update."""
    on_gpu = inputs[0].is_cuda
    optimizer = kind(model.parameters, lr=1e-5, fused=True, capturable=on_gpu)

    def step(x: Tensor, target: Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)  # a CUDA graph then allocates gradients in its own memory
        with matmul_precision(precision):
            with autocast(precision, x.device.type):
                out = model.forward(x)
            loss = F.mse_loss(out.float(), target)
            torch.autograd.backward(loss)
            optimizer.step()

    return [partial(step, x, target) for x, target in zip(inputs, targets, strict=True)]


# -- what ran ----------------------------------------------------------------------------------------------------------

OWN = "body_transformer"
NO_OPERATOR = "PyTorch's layers"
"""Result of `what_ran` if no operator of this package was called."""


class OperatorRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operators of this package that are called inside: `encoder_stack fused bf16`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: dict[str, None] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func.namespace == OWN:
            names = [argument.name for argument in func._schema.arguments]
            given = dict(zip(names, args, strict=False)) | dict(kwargs or {})
            settings = [given[name] for name in ("backend", "precision") if given.get(name)]
            self.seen[" ".join([func._schema.name.partition("::")[2], *settings])] = None
        return func(*args, **(kwargs or {}))


def what_ran(forward: Step) -> str:
    """Return the operators of one call: `encoder_stack fused bf16`."""
    with torch.no_grad(), OperatorRecorder() as recorder:
        forward()
    return ", ".join(recorder.seen) or NO_OPERATOR
