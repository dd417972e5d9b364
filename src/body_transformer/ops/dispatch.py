"""Choices that all operators make before a launch: precision, device, block sizes and memory layout."""

import os
from contextlib import AbstractContextManager
from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None
"""Whether Triton is installed: PyTorch for CUDA brings it on Linux, other builds do not."""


def check_triton(backend: str, tensor: str, device: torch.device) -> None:
    """Raise ValueError if the backend's kernels cannot run on this device."""
    if not HAS_TRITON:
        raise ValueError(f"backend {backend!r} needs the package triton, which is not installed")
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError(f"backend {backend!r} runs on cuda; {tensor} is on {device}")


def tf32_is_allowed() -> bool:
    """Return whether float32 products on CUDA may be computed in TF32, by either of PyTorch's two settings.

    `fp32_precision`, the newer setting, also shows a value set through `allow_tf32`, the older one. `allow_tf32` cannot
    be read after the newer one was set.
    """
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


# This has the effect of `torch.compiler.assume_constant_result` without importing the whole compiler. `torch.compile`
# does not trace into the function, and recompiles when the setting changes.
tf32_is_allowed._dynamo_marked_constant = True  # type: ignore[attr-defined]


def on_device_of(x: Tensor) -> AbstractContextManager[None]:
    """Make x's device the current one, because Triton launches there and ignores the device of the arguments."""
    return torch.cuda.device_of(x)  # type: ignore[no-untyped-call]


def num_blocks(total: int, block: int) -> int:
    """Return the number of blocks that hold `total` items."""
    return (total + block - 1) // block


def padded(size: int, least: int = 1) -> int:
    """Return the next power of two, but at least `least`: kernels support no other sizes."""
    return max(least, 1 << (size - 1).bit_length())


def row_major(matrix: Tensor | None) -> Tensor | None:
    """Return the matrix contiguous, as kernels expect masks and biases."""
    return None if matrix is None else matrix.contiguous()
