"""Input checks of the encoder, the same for every backend."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ...errors import unknown
from ..dispatch import check_triton, tf32_is_allowed
from .choose import BACKENDS, PRECISIONS, Limits
from .packing import layer_shapes
from .reference import PARAMETERS


def check(
    x: Tensor,
    parameters: Sequence[Tensor],
    mask: Tensor,
    masked: Sequence[bool],
    num_heads: int,
    precision: str | None,
    backend: str | None,
) -> None:
    """Raise ValueError for bad arguments; no values are read."""
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(unknown("precision", precision, PRECISIONS))
    if backend is not None and backend not in BACKENDS:
        raise ValueError(unknown("backend", backend, BACKENDS))
    _check_input(x, num_heads)
    _check_mask(x, mask)
    _check_parameters(x, parameters, len(masked))
    if backend is not None:
        _check_limits(backend, x, num_heads, len(masked))


def check_reference_precision(device: str, precision: str | None) -> None:
    """Refuse a precision other than PyTorch's setting, which the products of the reference follow."""
    if device == "cuda" and precision in ("fp32", "tf32") and (precision == "tf32") != tf32_is_allowed():
        raise ValueError(
            f"backend 'reference' follows torch.backends.cuda.matmul, in which TF32 is "
            f"{'allowed' if tf32_is_allowed() else 'not allowed'}; got precision {precision!r}"
        )


def _check_input(x: Tensor, num_heads: int) -> None:
    if not isinstance(num_heads, int):
        raise ValueError(f"num_heads must be a whole number; got {num_heads!r}")
    if x.ndim != 3 or x.shape[1] < 1 or x.shape[2] < 1:
        raise ValueError(f"x must be [B, N, E] with N and E at least 1; got {list(x.shape)}")
    if not x.dtype.is_floating_point:
        raise ValueError(f"x must be floating point; got {x.dtype}")
    if num_heads < 1 or x.shape[2] % num_heads:
        raise ValueError(f"num_heads must divide E = {x.shape[2]}; got {num_heads}")


def _check_mask(x: Tensor, mask: Tensor) -> None:
    num_nodes = x.shape[1]
    if not isinstance(mask, Tensor):
        raise ValueError(f"mask must be a bool tensor [{num_nodes}, {num_nodes}]; got {type(mask).__name__}")
    if mask.shape != (num_nodes, num_nodes) or mask.dtype != torch.bool:
        raise ValueError(f"mask must be bool [{num_nodes}, {num_nodes}]; got {mask.dtype} {list(mask.shape)}")
    if mask.device != x.device:
        raise ValueError(f"mask must be on the device of x, {x.device}; it is on {mask.device}")


def _check_parameters(x: Tensor, parameters: Sequence[Tensor], num_layers: int) -> None:
    if num_layers < 1 or len(parameters) != len(PARAMETERS) * num_layers:
        raise ValueError(
            f"{num_layers} layers have {len(PARAMETERS)} parameters each; got {len(parameters)} parameters"
        )
    named = [f"{name} of layer {layer}" for layer in range(num_layers) for name in PARAMETERS]
    for where, parameter in zip(named, parameters, strict=True):
        if not isinstance(parameter, Tensor):
            raise ValueError(f"{where} must be a tensor; got {type(parameter).__name__}")
    ff_dim = parameters[PARAMETERS.index("linear1.weight")].shape[:1].numel()
    shapes = [*layer_shapes(x.shape[2], ff_dim)] * num_layers
    for where, shape, parameter in zip(named, shapes, parameters, strict=True):
        if tuple(parameter.shape) != shape:
            raise ValueError(f"{where} must be {list(shape)}; got {list(parameter.shape)}")
        if parameter.dtype != x.dtype or parameter.device != x.device:
            given = f"{parameter.dtype} on {parameter.device}"
            raise ValueError(f"{where} must be {x.dtype} on {x.device}, as x is; got {given}")


def _check_limits(name: str, x: Tensor, num_heads: int, num_layers: int) -> None:
    if name == "reference":
        return
    row = BACKENDS[name]
    _, num_nodes, embed_dim = x.shape
    if not row.supports(num_nodes, embed_dim, num_heads, num_layers):
        layers = "" if row.max_layers == Limits.max_layers else f" and {row.max_layers} layers"
        raise ValueError(
            f"backend {name!r} takes widths of {row.embed_dim[0]} to {row.embed_dim[1]}, up to {row.max_nodes} nodes, "
            f"heads of up to {row.max_head_dim}{layers}; "
            f"got N = {num_nodes}, E = {embed_dim}, {num_heads} heads, {num_layers} layers"
        )
    if x.dtype != torch.float32:
        raise ValueError(f"backend {name!r} takes float32; x is {x.dtype}")
    check_triton(name, "x", x.device)
