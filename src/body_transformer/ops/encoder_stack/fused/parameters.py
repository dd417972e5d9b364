"""All parameters of an encoder in one row, and what the kernels are given of it."""

import torch
from torch import Tensor

from .sizes import Sizes


def pack(parameters: list[Tensor], precision: str) -> tuple[Tensor, Tensor]:
    """All parameters in one row, [L * layer]: in float32, and as the products' operands."""
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
    if precision == "bf16":
        return flat, flat.to(torch.bfloat16)
    if precision == "tf32":  # to the nearest, as `tiles.operand` does: the matrix units only cut off
        rounded = ((flat.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)
        return flat, torch.where(flat.isnan(), flat, rounded)
    return flat, flat.clone()


def views(flat: Tensor, operands: Tensor, sizes: Sizes) -> list[Tensor]:
    """Where the first layer's parameters start: matrices among the operands, vectors in float32."""
    return [(operands if "weight" in name else flat)[start:] for name, start in sizes.starts.items()]


def as_bits(flags: list[bool]) -> int:
    """Bit k says flags[k]."""
    return sum(1 << k for k, flag in enumerate(flags) if flag)


def parameter_gradients(stacks: list[Tensor], parameters: list[Tensor]) -> list[Tensor]:
    """The row of all gradients as one view for each parameter."""
    parts = torch.split(stacks[0], [parameter.numel() for parameter in parameters])
    return [part.view_as(parameter) for part, parameter in zip(parts, parameters, strict=True)]
