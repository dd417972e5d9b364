"""The reference, with its gradients written out: every pair is computed, masked or not."""

import torch
from torch import Tensor

from .reference import body_attention


def dense_forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
    """[B, H, N, D]; 16-bit inputs are multiplied in float32, since rounded scores would cost two digits."""
    q, k, v = precise(q), precise(k), precise(v)
    return body_attention(q, k, v, mask, None if bias is None else bias.to(q.dtype))


def dense_backward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, grad_out: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k, v and the bias."""
    q, k, v, grad_out = (precise(x) for x in (q, k, v, grad_out))
    scale = q.shape[-1] ** -0.5
    scores = (q * scale) @ k.transpose(-2, -1)  # [B, H, N, N]
    if bias is not None:
        scores = scores + bias.to(q.dtype)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    p = torch.softmax(scores, dim=-1)
    dp = grad_out @ v.transpose(-2, -1)
    ds = p * (dp - (p * dp).sum(-1, keepdim=True))
    return scale * ds @ k, scale * ds.transpose(-2, -1) @ q, p.transpose(-2, -1) @ grad_out, ds.sum((0, 1))


def precise(x: Tensor) -> Tensor:
    """As it is computed with: float32 at least."""
    return x.float() if x.element_size() < 4 else x
