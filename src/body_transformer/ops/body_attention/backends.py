"""The implementations of body attention, and the inputs that each supports."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .mask_facts import facts_of
from .plain import dense_backward, dense_forward, neighbours_backward, neighbours_forward

Gradients = tuple[Tensor, Tensor, Tensor, Tensor | None]

HALVES_AND_SINGLE = (torch.float16, torch.bfloat16, torch.float32)
ALL_FLOATS = (*HALVES_AND_SINGLE, torch.float64)
MAX_KERNEL_ROWS = 2**30
"""The kernels count rows in 32 bits."""


@dataclass(frozen=True)
class Backend:
    """One implementation; None = no limit."""

    forward: Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor | None], Tensor]
    """(q, k, v, mask, bias) -> attention, in q's layout."""
    backward: Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor], Gradients]
    """(q, k, v, mask, bias, grad_out) -> gradients of q, k, v and the bias."""
    dtypes: tuple[torch.dtype, ...] = ALL_FLOATS
    max_nodes: int | None = None
    max_head_dim: int | None = None
    max_rows: int | None = None
    """B·H·N"""
    needs_mask: bool = False
    needs_triton: bool = False


# -- plain PyTorch -----------------------------------------------------------------------------------------------------


def _reference(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
    return _as(q, dense_forward(q, k, v, mask, bias))


def _reference_backward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, grad_out: Tensor
) -> Gradients:
    dq, dk, dv, dbias = dense_backward(q, k, v, mask, bias, grad_out)
    return _as(q, dq), _as(k, dk), _as(v, dv), dbias


def _neighbours(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
    assert mask is not None
    return _as(q, neighbours_forward(q, k, v, facts_of(mask).buckets(mask), bias))


def _neighbours_backward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, grad_out: Tensor
) -> Gradients:
    assert mask is not None
    dq, dk, dv, dbias = neighbours_backward(q, k, v, facts_of(mask).buckets(mask), bias, grad_out)
    return _as(q, dq), _as(k, dk), _as(v, dv), dbias


def _as(like: Tensor, x: Tensor) -> Tensor:
    """Return `x`, a new tensor, in the dtype and the layout of `like`."""
    if x.dtype == like.dtype and x.is_contiguous() and like.is_contiguous():
        return x
    return torch.empty_like(like).copy_(x)


# -- Triton, imported on first use since it is optional ----------------------------------------------------------------


def _sparse(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
    from .sparse import sparse_forward

    assert mask is not None
    out = torch.empty_like(q)
    sparse_forward(q, k, v, facts_of(mask).lists(mask), bias, out)
    return out


def _sparse_backward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, grad_out: Tensor
) -> Gradients:
    from .sparse import sparse_backward

    assert mask is not None
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    return dq, dk, dv, sparse_backward(q, k, v, facts_of(mask).lists(mask), bias, grad_out, dq, dk, dv)


def _tile(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
    from .tile import tile_forward

    out = torch.empty_like(q)
    tile_forward(q, k, v, mask, bias, out)
    return out


def _tile_backward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, grad_out: Tensor
) -> Gradients:
    from .tile import tile_backward

    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    return dq, dk, dv, tile_backward(q, k, v, mask, bias, grad_out, dq, dk, dv)


BACKENDS = {
    "reference": Backend(_reference, _reference_backward),
    "neighbours": Backend(_neighbours, _neighbours_backward, needs_mask=True),
    "triton": Backend(
        _sparse,
        _sparse_backward,
        HALVES_AND_SINGLE,
        max_nodes=16_384,
        max_head_dim=128,
        max_rows=MAX_KERNEL_ROWS,
        needs_mask=True,
        needs_triton=True,
    ),
    "tile": Backend(
        _tile,
        _tile_backward,
        HALVES_AND_SINGLE,
        max_nodes=128,
        max_head_dim=128,
        max_rows=MAX_KERNEL_ROWS,
        needs_triton=True,
    ),
}
