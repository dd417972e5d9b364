"""Attention of a wide layer, on heads as its products leave them: packed in rows, one row a token."""

from torch import Tensor

from ...body_attention.tile import tile_backward, tile_forward

TILE_PRECISION = {"bf16": None, "tf32": "tf32", "fp32": "ieee"}  # our names -> those of `tile_forward`


class Attention:
    """Attention of the heads packed in [M, 3E], for B samples of N nodes: M = B * N."""

    def __init__(self, x: Tensor, num_heads: int, mask: Tensor | None, precision: str) -> None:
        batch, num_nodes, width = x.shape
        self.shape = (batch, num_nodes, -1, num_heads, width // num_heads)
        self.mask = mask
        self.precision = TILE_PRECISION[precision]

    def forward(self, qkv: Tensor, masked: bool, out: Tensor) -> None:
        """[M, 3E] -> `out` [M, E]"""
        q, k, v = self._heads(qkv)
        (out_heads,) = self._heads(out)
        tile_forward(q, k, v, self.mask if masked else None, None, out_heads, self.precision)

    def backward(self, qkv: Tensor, masked: bool, grad_out: Tensor, out: Tensor) -> None:
        """The gradient of `qkv` into `out` [M, 3E], from that of the forward pass's result [M, E]"""
        q, k, v = self._heads(qkv)
        dq, dk, dv = self._heads(out)
        (gradient,) = self._heads(grad_out)
        tile_backward(q, k, v, self.mask if masked else None, None, gradient, dq, dk, dv, self.precision)

    def _heads(self, packed: Tensor) -> tuple[Tensor, ...]:
        """Views [B, H, N, D] of what is packed in [M, k E], k of them."""
        return packed.view(self.shape).permute(2, 0, 3, 1, 4).unbind(0)
