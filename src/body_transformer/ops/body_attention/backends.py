"""The implementations of body attention, and the inputs that each supports."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module

import torch
from torch import Tensor

from .plain import dense_backward, dense_forward, neighbours_backward, neighbours_forward

Gradients = tuple[Tensor, Tensor, Tensor, Tensor | None]

HALVES_AND_SINGLE = (torch.float16, torch.bfloat16, torch.float32)
ALL_FLOATS = (*HALVES_AND_SINGLE, torch.float64)
MAX_KERNEL_ROWS = 2**30
"""The kernels count rows in 32 bits."""


@dataclass(frozen=True)
class Backend:
    """One implementation and its limits; None = no limit."""

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

    def refusal(self, dtype: torch.dtype, num_nodes: int, head_dim: int, num_rows: int = 1) -> str:
        """Describe the limit that inputs of this dtype and size exceed; an empty string if they are supported."""
        if dtype not in self.dtypes:
            return f"takes {dtype_names(*self.dtypes)}; q has {dtype_names(dtype)}"
        if self.max_nodes is not None and num_nodes > self.max_nodes:
            return f"takes up to {self.max_nodes} nodes; got N = {num_nodes}"
        if self.max_head_dim is not None and head_dim > self.max_head_dim:
            return f"takes a head dimension of 1 to {self.max_head_dim}; got D = {head_dim}"
        if self.max_rows is not None and num_rows > self.max_rows:
            return f"takes up to {self.max_rows} rows B·H·N; got {num_rows}"
        return ""


def dtype_names(*dtypes: torch.dtype) -> str:
    """Return the names of dtypes, such as `float16, float32`."""
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)


# -- adapters for plain PyTorch and for kernels ------------------------------------------------------------------------


def _plain(compute: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, *pairwise: Tensor | None) -> Tensor:
    """Return the result of plain PyTorch in q's dtype and layout."""
    return _as_like(q, compute(q, k, v, *pairwise))


def _plain_backward(
    compute: Callable[..., Gradients], q: Tensor, k: Tensor, v: Tensor, *others: Tensor | None
) -> Gradients:
    dq, dk, dv, dbias = compute(q, k, v, *others)
    return _as_like(q, dq), _as_like(k, dk), _as_like(v, dv), dbias


def _as_like(like: Tensor, x: Tensor) -> Tensor:
    """Return `x`, a new tensor, in the dtype and the layout of `like`."""
    if x.dtype == like.dtype and x.is_contiguous() and like.is_contiguous():
        return x
    return torch.empty_like(like).copy_(x)


def _triton(module: str, q: Tensor, *others: Tensor | None) -> Tensor:
    """Return the result of a module's kernels; the module is imported on first use, since Triton is optional."""
    out = torch.empty_like(q)
    import_module(module, __package__).forward(q, *others, out)
    return out


def _triton_backward(module: str, q: Tensor, k: Tensor, v: Tensor, *others: Tensor | None) -> Gradients:
    grads = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    return *grads, import_module(module, __package__).backward(q, k, v, *others, *grads)


BACKENDS = {
    "reference": Backend(partial(_plain, dense_forward), partial(_plain_backward, dense_backward)),
    "neighbours": Backend(
        partial(_plain, neighbours_forward), partial(_plain_backward, neighbours_backward), needs_mask=True
    ),
    "triton": Backend(
        partial(_triton, ".sparse"),
        partial(_triton_backward, ".sparse"),
        HALVES_AND_SINGLE,
        max_nodes=16_384,
        max_head_dim=128,
        max_rows=MAX_KERNEL_ROWS,
        needs_mask=True,
        needs_triton=True,
    ),
    "tile": Backend(
        partial(_triton, ".tile"),
        partial(_triton_backward, ".tile"),
        HALVES_AND_SINGLE,
        max_nodes=128,
        max_head_dim=128,
        max_rows=MAX_KERNEL_ROWS,
        needs_triton=True,
    ),
}
