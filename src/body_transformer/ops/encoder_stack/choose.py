"""Which implementation of the encoder runs, and in which arithmetic."""

from dataclasses import dataclass
from importlib.util import find_spec

import torch

PRECISIONS = ("fp32", "tf32", "bf16")
"""Of the products' operands; sums, LayerNorm, softmax, the residual stream and all parameters are float32."""

HAS_TRITON = find_spec("triton") is not None
"""PyTorch for CUDA brings it on Linux; others may have to do without."""


@dataclass(frozen=True)
class Backend:
    """The sizes that one implementation takes, and the precisions in which it is the fastest one."""

    max_nodes: int
    embed_dim: tuple[int, int]
    """From, to; both included."""
    max_head_dim: int
    max_layers: int
    preferred: tuple[str, ...]

    def takes(self, num_nodes: int, embed_dim: int, num_heads: int, num_layers: int) -> bool:
        return (
            num_nodes <= self.max_nodes
            and self.embed_dim[0] <= embed_dim <= self.embed_dim[1]
            and embed_dim // num_heads <= self.max_head_dim
            and num_layers <= self.max_layers
        )


BACKENDS = {
    "fused": Backend(64, (16, 128), 128, 62, preferred=("tf32", "bf16")),
    "wide": Backend(128, (129, 4096), 128, 10_000, preferred=("tf32", "bf16")),
    "reference": Backend(10**9, (1, 10**9), 10**9, 10**9, preferred=PRECISIONS),
}
"""In the order in which they are tried; measured by `bot bench encoder`."""


def choose_backend(device: str, precision: str, num_nodes: int, embed_dim: int, num_heads: int, num_layers: int) -> str:
    """The name of the backend that `encoder_stack` takes by itself."""
    if device != "cuda" or not HAS_TRITON:
        return "reference"
    sizes = (num_nodes, embed_dim, num_heads, num_layers)
    return next(name for name, row in BACKENDS.items() if precision in row.preferred and row.takes(*sizes))


def current_precision(device: str) -> str | None:
    """What PyTorch's own settings ask for: autocast's type, else TF32 if it is allowed; None: a type we do not have."""
    if torch.is_autocast_enabled(device):
        return {torch.bfloat16: "bf16", torch.float32: "fp32"}.get(torch.get_autocast_dtype(device))
    return "tf32" if device == "cuda" and torch.backends.cuda.matmul.allow_tf32 else "fp32"
