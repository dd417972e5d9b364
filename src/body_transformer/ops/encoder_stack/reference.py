"""The specification of the encoder as one operator, in plain PyTorch."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from ..body_attention.reference import body_attention

PARAMETERS = (
    "attention.in_proj.weight",  # [3E, E] queries, keys, values
    "attention.in_proj.bias",
    "attention.out_proj.weight",  # [E, E]
    "attention.out_proj.bias",
    "norm1.weight",
    "norm1.bias",
    "linear1.weight",  # [F, E]
    "linear1.bias",
    "linear2.weight",  # [E, F]
    "linear2.bias",
    "norm2.weight",
    "norm2.bias",
)
"""The parameters of one layer, in the order in which they are handed over."""


def encoder_stack(
    x: Tensor, parameters: Sequence[Tensor], mask: Tensor, masked: Sequence[bool], num_heads: int, eps: float = 1e-5
) -> Tensor:
    """A post-norm transformer encoder with ReLU.

    Args:
        x: [B, N, E].
        parameters: those of every layer, one layer after the other, each in the order of `PARAMETERS`.
        mask: [N, N] bool, True = may attend.
        masked: for each layer, whether the mask counts there.

    Returns:
        [B, N, E]
    """
    batch, num_nodes, embed_dim = x.shape
    for layer, is_masked in enumerate(masked):
        in_w, in_b, out_w, out_b, n1_w, n1_b, w1, b1, w2, b2, n2_w, n2_b = parameters[12 * layer : 12 * layer + 12]
        qkv = F.linear(x, in_w, in_b).view(batch, num_nodes, 3, num_heads, embed_dim // num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, N, D]
        heads = body_attention(q, k, v, mask if is_masked else None)
        heads = heads.transpose(1, 2).reshape(batch, num_nodes, embed_dim)
        x = F.layer_norm(x + F.linear(heads, out_w, out_b), (embed_dim,), n1_w, n1_b, eps)
        x = F.layer_norm(x + F.linear(F.relu(F.linear(x, w1, b1)), w2, b2), (embed_dim,), n2_w, n2_b, eps)
    return x
