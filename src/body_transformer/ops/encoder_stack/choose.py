"""The choice of the encoder's implementation and precision."""

import warnings
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from ..dispatch import HAS_TRITON, tf32_is_allowed

PRECISIONS = ("fp32", "tf32", "bf16")
"""Precision of the products' operands; sums, LayerNorm, softmax, the residual stream and parameters are float32."""


@dataclass(frozen=True)
class Limits:
    """The sizes that one implementation supports."""

    max_nodes: int = 10**9
    embed_dim: tuple[int, int] = (1, 10**9)
    """Range, both ends included."""
    max_head_dim: int = 10**9
    max_layers: int = 10**9

    def supports(self, num_nodes: int, embed_dim: int, num_heads: int, num_layers: int) -> bool:
        return (
            num_nodes <= self.max_nodes
            and self.embed_dim[0] <= embed_dim <= self.embed_dim[1]
            and embed_dim // num_heads <= self.max_head_dim
            and num_layers <= self.max_layers
        )


BACKENDS = {
    "fused": Limits(64, (16, 128), 64, 62),
    "wide": Limits(128, (16, 4096), 128),
    "reference": Limits(),
}


@dataclass(frozen=True)
class Choice:
    """A row of the table: sizes and precisions for which a backend is chosen.

    `benchmarks/encoder_crossover.py` timed a width of 64 with 8 to 64 nodes, 32 with 16 and 32 nodes, and 128 with 16.
    `bot bench encoder` timed the paper's 320. The choice for other sizes is an assumption.
    """

    backend: str
    limits: Limits
    precisions: tuple[str, ...]
    shared_kib: int
    """KiB of shared memory that its kernels may need; the row is skipped on a GPU with less."""


CHOICES = (
    Choice("fused", Limits(32, (16, 64), 64, 62), ("bf16",), shared_kib=100),
    Choice("fused", Limits(64, (16, 128), 64, 62), ("tf32", "bf16"), shared_kib=220),
    Choice("wide", Limits(64, (129, 4096), 64), ("tf32", "bf16"), shared_kib=100),
    Choice("wide", Limits(128, (65, 4096), 128), ("tf32", "bf16"), shared_kib=220),
)
"""The first row that applies is used; if none does, the backend is "reference"."""


def choose_backend(
    device: str,
    precision: str,
    num_nodes: int,
    embed_dim: int,
    num_heads: int,
    num_layers: int,
    shared_kib: int = 227,
    sound_ptxas: bool = True,
) -> str:
    """Return the default backend of `encoder_stack` for these sizes; an H200 has 227 KiB of shared memory."""
    if device != "cuda" or not HAS_TRITON:
        return "reference"
    sizes = (num_nodes, embed_dim, num_heads, num_layers)
    for choice in CHOICES:
        runs = choice.shared_kib <= shared_kib and (sound_ptxas or choice.backend != "fused")
        if runs and precision in choice.precisions and choice.limits.supports(*sizes):
            return choice.backend
    return "reference"


def shared_memory_kib(device: torch.device) -> int:
    """Return the shared memory, in KiB, that one program may use."""
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", 48 * 1024)) // 1024


def has_sound_ptxas() -> bool:
    """Return whether an assembler for the fused kernels is available; warn once if not."""
    from ..assembler import sound_ptxas  # imports Triton

    found = sound_ptxas() is not None
    if not found:
        _warn()
    return found


has_sound_ptxas._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as in ../dispatch.py


@cache
def _warn() -> None:
    from ..assembler import NONE_THERE

    warnings.warn(f"{NONE_THERE}. Until then the encoder is slower.", stacklevel=3)


def current_precision(device: str) -> str | None:
    """Return the precision of PyTorch's settings, or None if it is not supported.

    It is that of autocast. Without autocast, it is TF32 if allowed, else float32.
    """
    if torch.is_autocast_enabled(device):
        return {torch.bfloat16: "bf16", torch.float32: "fp32"}.get(torch.get_autocast_dtype(device))
    return "tf32" if device == "cuda" and tf32_is_allowed() else "fp32"


def as_residual(x: Tensor) -> Tensor:
    """Return x in float32 under autocast, as LayerNorm does, so that the residual stream is not rounded."""
    is_half = x.dtype in (torch.float16, torch.bfloat16)
    return x.float() if is_half and torch.is_autocast_enabled(x.device.type) else x


def automatic_backend(x: Tensor, num_heads: int, num_layers: int, precision: str | None) -> str:
    """Return the default backend of `encoder_stack` for x [B, N, E]."""
    if not x.is_cuda or not HAS_TRITON or x.dtype != torch.float32 or precision is None:
        return "reference"
    sizes = (x.shape[1], x.shape[2], num_heads, num_layers, shared_memory_kib(x.device))
    backend = choose_backend("cuda", precision, *sizes)
    if backend == "fused" and not has_sound_ptxas():
        return choose_backend("cuda", precision, *sizes, sound_ptxas=False)
    return backend
