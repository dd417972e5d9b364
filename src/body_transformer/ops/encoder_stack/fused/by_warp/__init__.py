"""The fused encoder for small bodies in bfloat16: each warp of a GPU has samples of its own."""

from .passes import backward, fake_forward, forward
from .sizes import takes

__all__ = ["backward", "fake_forward", "forward", "takes"]
