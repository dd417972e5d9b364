"""Body attention as a PyTorch operator: one node for `torch.compile`, `torch.export` and CUDA graphs.

The operator takes the mask itself. Everything that depends on its values (self-loops, density, neighbour lists) is
looked up when the operator runs, so that one traced graph serves every mask.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from ..dispatch import on_device_of
from .backends import BACKENDS
from .check import check_backend_name, check_limits, check_self_loops, check_tensors, check_types
from .choose import choose_backend
from .mask_facts import facts_of


def body_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    backend: str | None = None,
) -> Tensor:
    """Compute softmax(q kᵀ / √D + bias) v where `mask` is True; differentiable once, in q, k, v and bias.

    Args:
        q, k, v: [B, H, N, D], float16, bfloat16, float32 or float64, any strides.
        mask: [N, N] bool, True = may attend, with every self-loop; None = all may attend. Facts about it are cached as
            long as the tensor exists and does not change, so keep the tensor. A CUDA graph holds pointers to these
            facts. The mask must therefore be used once before the capture, and kept unchanged while the graph is
            replayed. Under `torch.compile(mode="reduce-overhead")` it must be a module's buffer.
        bias: [N, N], added to the scores of every sample and head.
        backend: a name from `BACKENDS`; None = the choice of `choose_backend`.

    Returns:
        [B, H, N, D], in the layout of q. Under autocast it is computed in autocast's dtype.
    """
    check_types(q, k, v, mask, bias, backend)
    kind = q.device.type
    if torch.is_autocast_enabled(kind) and q.dtype != torch.float64:
        dtype = torch.get_autocast_dtype(kind)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    out: Tensor = _attention(q, k, v, mask, bias, backend)
    return out


@torch.library.custom_op("body_transformer::body_attention", mutates_args=())
def _attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, backend: str | None
) -> Tensor:
    name = _checked_backend(q, k, v, mask, bias, backend)
    with _without_autocast(q.device.type), on_device_of(q):
        return BACKENDS[name].forward(q, k, v, mask, bias)


@torch.library.custom_op("body_transformer::body_attention_backward", mutates_args=())
def _attention_backward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, grad_out: Tensor, backend: str | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of q, k, v and the bias; the last is empty without a bias."""
    name = _checked_backend(q, k, v, mask, bias, backend)
    with _without_autocast(q.device.type), on_device_of(q):
        dq, dk, dv, dbias = BACKENDS[name].backward(q, k, v, mask, bias, grad_out)
    return dq, dk, dv, _no_bias_gradient(q) if dbias is None else dbias


def _checked_backend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, backend: str | None
) -> str:
    check_backend_name(backend)
    check_tensors(q, k, v, mask, bias)
    if backend is not None:
        check_limits(backend, q, mask)
    facts = None if mask is None else facts_of(mask)
    check_self_loops(facts)
    if backend is None:
        batch, heads, num_nodes, head_dim = q.shape
        density = 1.0 if facts is None else facts.density
        backend = choose_backend(
            q.device.type, q.dtype, num_nodes, head_dim, density, bias is not None, batch * heads * num_nodes
        )
        check_limits(backend, q, mask)
    return backend


def _without_autocast(device: str) -> AbstractContextManager[object]:
    """Disable autocast, which would change the float32 products of a backend; q, k and v already have its dtype."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def _no_bias_gradient(q: Tensor) -> Tensor:
    return q.new_empty(0)


# -- for tracing: shapes and layouts without values --------------------------------------------------------------------


@_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, backend: str | None) -> Tensor:
    check_backend_name(backend)
    check_tensors(q, k, v, mask, bias)
    return torch.empty_like(q)


@_attention_backward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, grad_out: Tensor, backend: str | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dbias = _no_bias_gradient(q)
    if bias is not None:
        precise = torch.float64 if q.dtype == torch.float64 else torch.float32
        dbias = torch.empty_like(bias, dtype=precise, memory_format=torch.contiguous_format)
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), dbias


# -- for autograd ------------------------------------------------------------------------------------------------------


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.backend = inputs
    ctx.save_for_backward(*tensors)


def _gradients(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
    q, k, v, mask, bias = ctx.saved_tensors
    dq, dk, dv, dbias = _attention_backward(q, k, v, mask, bias, grad_out, ctx.backend)
    return dq, dk, dv, None, None if bias is None else dbias.to(bias.dtype), None


def _no_second_gradients(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "body_attention has no second derivative; body_transformer.ops.body_attention.reference.body_attention has"
    )


_attention.register_autograd(_gradients, setup_context=_setup)
_attention_backward.register_autograd(_no_second_gradients)
