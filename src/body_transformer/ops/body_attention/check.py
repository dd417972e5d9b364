"""Input checks of body attention, the same for every backend."""

from typing import Any

import torch
from torch import Tensor

from ...errors import unknown
from ..dispatch import check_triton
from .backends import ALL_FLOATS, BACKENDS, dtype_names
from .mask_facts import MaskFacts


def check_types(q: object, k: object, v: object, mask: object, bias: object, backend: object) -> None:
    """Check the types of the arguments, before any attribute is read."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise ValueError(f"{name} must be a tensor; got {type(x).__name__}")
    for name, x in (("mask", mask), ("bias", bias)):
        if x is not None and not isinstance(x, Tensor):
            raise ValueError(f"{name} must be a tensor or None; got {type(x).__name__}")
    check_backend_name(backend)


def check_backend_name(backend: Any) -> None:
    if backend is not None and not (isinstance(backend, str) and backend in BACKENDS):
        raise ValueError(unknown("backend", backend, BACKENDS))


def check_tensors(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None) -> None:
    """Check shapes, dtypes and devices; no values are read."""
    if q.ndim != 4 or k.shape != q.shape or v.shape != q.shape:
        raise ValueError(f"q, k and v must have one shape [B, H, N, D]; got {_shapes(q, k, v)}")
    if q.shape[2] < 1 or q.shape[3] < 1:
        raise ValueError(f"N and D must be at least 1; q is {_shapes(q)}")
    if q.dtype not in ALL_FLOATS or k.dtype != q.dtype or v.dtype != q.dtype:
        given = dtype_names(q.dtype, k.dtype, v.dtype)
        raise ValueError(f"q, k and v must have one dtype of {dtype_names(*ALL_FLOATS)}; got {given}")
    if k.device != q.device or v.device != q.device:
        raise ValueError(f"q, k and v must be on one device; got {q.device}, {k.device}, {v.device}")
    _check_pairwise("mask", mask, q, (torch.bool,))
    _check_pairwise("bias", bias, q, ALL_FLOATS)


def _check_pairwise(name: str, x: Tensor | None, q: Tensor, dtypes: tuple[torch.dtype, ...]) -> None:
    if x is None:
        return
    num_nodes = q.shape[2]
    if x.ndim != 2 or x.shape[0] != num_nodes or x.shape[1] != num_nodes:
        raise ValueError(f"{name} must be [N, N] with N = {num_nodes}, as in q {_shapes(q)}; got {_shapes(x)}")
    if x.dtype not in dtypes:
        raise ValueError(f"{name} must have dtype {dtype_names(*dtypes)}; got {dtype_names(x.dtype)}")
    if x.device != q.device:
        raise ValueError(f"{name} must be on the device of q, {q.device}; it is on {x.device}")


def check_self_loops(facts: MaskFacts | None) -> None:
    row = None if facts is None else facts.row_without_self_loop
    if row is not None:
        raise ValueError(f"every node must attend to itself; mask[{row}, {row}] is False")


def check_limits(name: str, q: Tensor, mask: Tensor | None) -> None:
    """Refuse inputs that the backend does not support."""
    backend = BACKENDS[name]
    batch, heads, num_nodes, head_dim = q.shape
    if refusal := backend.refusal(q.dtype, num_nodes, head_dim, batch * heads * num_nodes):
        raise ValueError(f"backend {name!r} {refusal}")
    if backend.needs_mask and mask is None:
        others = " or ".join(repr(other) for other, row in BACKENDS.items() if not row.needs_mask)
        raise ValueError(f"backend {name!r} needs a mask; without one use {others}")
    if backend.needs_triton:
        check_triton(name, "q", q.device)


def _shapes(*tensors: Tensor) -> str:
    return ", ".join(str(list(x.shape)) for x in tensors)
