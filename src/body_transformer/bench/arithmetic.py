"""The precisions in which a network is timed, each as PyTorch's own switches set it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

MatmulPrecision = Literal["highest", "high"]


@dataclass(frozen=True)
class Precision:
    """How products of float32 tensors are computed."""

    matmul: MatmulPrecision
    """For `torch.set_float32_matmul_precision`: "high" lets them be tf32."""
    autocast: bool = False
    """Whether the forward pass runs under bf16 autocast."""


PRECISIONS = {
    "bf16": Precision("high", autocast=True),
    "tf32": Precision("high"),
    "fp32": Precision("highest"),
}
ON_DEVICE = {"cuda": ("bf16", "tf32"), "cpu": ("fp32",)}
"""What is timed where: a CPU has no tf32, and few have bf16."""


@contextmanager
def matmul_precision(name: str) -> Iterator[None]:
    """For a whole step: the backward pass asks for it too."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(PRECISIONS[name].matmul)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def autocast(name: str, device: str) -> torch.autocast:
    """For the forward pass alone, as PyTorch advises; without its cache of weights: no CUDA graph may keep one."""
    return torch.autocast(device, torch.bfloat16, enabled=PRECISIONS[name].autocast, cache_enabled=False)
