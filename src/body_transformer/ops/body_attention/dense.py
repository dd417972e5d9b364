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
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The gradients of q, k, v and, if there is one, the bias; with as few passes over all pairs as will do."""
    q, k, v, grad_out = (precise(x) for x in (q, k, v, grad_out))
    scale: float = q.shape[-1] ** -0.5
    scores = (q * scale) @ k.transpose(-2, -1)  # [B, H, N, N]
    if bias is not None:
        scores += bias.to(q.dtype)
    if mask is not None:
        scores.masked_fill_(~mask, float("-inf"))
    p = torch.softmax(scores, dim=-1)
    p_dp = (grad_out @ v.transpose(-2, -1)).mul_(p)
    ds = torch.addcmul(p_dp, p, p_dp.sum(-1, keepdim=True), value=-1)
    dq, dk, dv = ds @ (k * scale), ds.transpose(-2, -1) @ (q * scale), p.transpose(-2, -1) @ grad_out
    return dq, dk, dv, None if bias is None else ds.sum((0, 1))


def precise(x: Tensor) -> Tensor:
    """As it is computed with: float32 at least."""
    return x.float() if x.element_size() < 4 else x
