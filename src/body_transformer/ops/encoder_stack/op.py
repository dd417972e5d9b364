"""The encoder as a PyTorch operator: one node for `torch.compile`, `torch.export` and CUDA graphs."""

from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ..body_attention.check import check_self_loops
from ..body_attention.mask_facts import facts_of
from ..dispatch import on_device_of
from . import reference
from .check import check, check_reference_precision
from .choose import as_residual, automatic_backend, current_precision
from .packing import Call


def encoder_stack(
    x: Tensor,
    parameters: Sequence[Tensor],
    mask: Tensor,
    masked: Sequence[bool],
    num_heads: int,
    *,
    eps: float = 1e-5,
    precision: str | None = None,
    backend: str | None = None,
) -> Tensor:
    """Compute a post-norm transformer encoder with ReLU; differentiable once, in x and every parameter.

    Args:
        x: [B, N, E], on a GPU float32.
        parameters: float32, one layer after the other, each in the order of `PARAMETERS`.
        mask: [N, N] bool, True = may attend, with every self-loop.
        masked: whether each layer uses the mask.
        precision: "fp32", "tf32" or "bf16" for the products' operands; None = that of autocast and
            `torch.backends.cuda.matmul.allow_tf32`.
        backend: "fused", "wide" or "reference"; None = the fastest that supports these sizes.

    Returns:
        [B, N, E], as accurate as PyTorch's own encoder in that precision.
    """
    kind = x.device.type
    x = as_residual(x)
    check(x, parameters, mask, masked, num_heads, precision, backend)
    wanted = precision or current_precision(kind)
    backend = backend or automatic_backend(x, num_heads, len(masked), wanted)
    if backend == "reference" or wanted is None or x.shape[0] == 0:
        check_reference_precision(kind, precision)
        with _products(kind, wanted):
            return reference.encoder_stack(x, parameters, _checked(mask), masked, num_heads, eps)
    save = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, *parameters))
    with torch.autocast(kind, enabled=False):
        out, *_ = _forward(x, list(parameters), mask, list(masked), num_heads, eps, wanted, backend, save)
    result: Tensor = out
    return result


def _products(kind: str, precision: str | None) -> Any:
    """Compute the reference's products in this precision, even where autocast differs."""
    if precision is None or precision == current_precision(kind):
        return nullcontext()
    return torch.autocast(kind, torch.bfloat16, enabled=precision == "bf16")


def _checked(mask: Tensor) -> Tensor:
    """Return the mask after a check of its self-loops; while compiling, an operator checks it at run time."""
    if torch.compiler.is_compiling():
        checked: Tensor = _mask_with_self_loops(mask)
        return checked
    check_self_loops(facts_of(mask))
    return mask


@torch.library.custom_op("body_transformer::mask_with_self_loops", mutates_args=())
def _mask_with_self_loops(mask: Tensor) -> Tensor:
    check_self_loops(facts_of(mask))
    return mask.clone()


@_mask_with_self_loops.register_fake
def _(mask: Tensor) -> Tensor:
    return torch.empty_like(mask)


def _implementation(backend: str) -> ModuleType:
    return import_module(f".{backend}", __package__)  # imports Triton, which is optional


@torch.library.custom_op("body_transformer::encoder_stack", mutates_args=())
def _forward(
    x: Tensor,
    parameters: list[Tensor],
    mask: Tensor,
    masked: list[bool],
    num_heads: int,
    eps: float,
    precision: str,
    backend: str,
    save: bool,
) -> list[Tensor]:
    """Return the output and, with `save`, the tensors for the backward pass."""
    check_self_loops(facts_of(mask))
    call = Call(mask, masked, num_heads, eps, precision)
    with on_device_of(x):
        out: list[Tensor] = _implementation(backend).forward(x, parameters, call, save)
    return out


@torch.library.custom_op("body_transformer::encoder_stack_backward", mutates_args=())
def _backward(
    grad_out: Tensor,
    saved: list[Tensor],
    x: Tensor,
    parameters: list[Tensor],
    mask: Tensor,
    masked: list[bool],
    num_heads: int,
    eps: float,
    precision: str,
    backend: str,
) -> list[Tensor]:
    """Return the gradient of x and those of the parameters, stacked in the backend's form."""
    call = Call(mask, masked, num_heads, eps, precision)
    with on_device_of(x):
        out: list[Tensor] = _implementation(backend).backward(grad_out, saved, x, parameters, call)
    return out


@_forward.register_fake
def _(x: Tensor, parameters: list[Tensor], *options: Any) -> list[Tensor]:
    *_, num_heads, _eps, precision, backend, save = options
    out: list[Tensor] = _implementation(backend).fake_forward(x, parameters, num_heads, precision, save)
    return out


@_backward.register_fake
def _(grad_out: Tensor, saved: list[Tensor], x: Tensor, parameters: list[Tensor], *options: Any) -> list[Tensor]:
    out: list[Tensor] = _implementation(options[-1]).fake_backward(x, parameters)
    return out


def _setup(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, parameters, mask, *ctx.options, ctx.save = inputs
    ctx.num_saved = len(output) - 1
    ctx.save_for_backward(*output[1:], x, mask, *parameters)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    tensors = list(ctx.saved_tensors)
    saved, (x, mask, *parameters) = tensors[: ctx.num_saved], tensors[ctx.num_saved :]
    if not ctx.save:
        raise RuntimeError("encoder_stack was called while gradients were off; nothing was saved for a backward pass")
    if grads[0] is None:
        return (None, [None] * len(parameters), *[None] * 7)
    backend = ctx.options[-1]
    grad_x, *stacks = _backward(grads[0].contiguous(), saved, x, parameters, mask, *ctx.options)
    return (grad_x, _implementation(backend).parameter_gradients(stacks, parameters), *[None] * 7)


def _no_second_gradients(ctx: Any, *grads: Any) -> None:
    raise RuntimeError("encoder_stack has no second derivative; backend='reference' has")


_forward.register_autograd(_gradients, setup_context=_setup)
_backward.register_autograd(_no_second_gradients)
