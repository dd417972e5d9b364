"""The specification of masked attention, in plain PyTorch."""

import torch
from torch import Tensor


def body_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """Compute softmax(q kᵀ / √D + bias) v over the pairs where `mask` is True.

    Args:
        q, k, v: [B, H, N, D].
        mask: [N, N] bool, True = may attend, at least one True in every row; None = all may attend.
        bias: [N, N], added to the scores of every sample and head.

    Returns:
        [B, H, N, D]
    """
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)  # [B, H, N, N]
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v
