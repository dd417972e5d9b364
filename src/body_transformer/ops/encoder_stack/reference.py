"""The specification of the encoder, in plain PyTorch.

A layer is written once, in terms of callable parts. In `model.encoder` the parts are modules. In `encoder_stack` below,
with which the kernels are compared, they are functions of the given parameters.
"""

from collections.abc import Callable, Sequence
from functools import partial

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
"""Parameters of one layer, in the order in which `encoder_stack` takes them."""

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor | None], Tensor]
"""(q, k, v, mask, bias) -> heads, as `body_attention`."""


class AttentionSpec:
    """Multi-head attention of the tokens among themselves."""

    num_heads: int
    in_proj: Callable[[Tensor], Tensor]  # [B, N, E] -> [B, N, 3E] queries, keys, values
    attend: Attend
    out_proj: Callable[[Tensor], Tensor]  # [B, N, E] -> [B, N, E]

    def forward(self, x: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        """[B, N, E] -> [B, N, E]"""
        batch, num_nodes, embed_dim = x.shape
        qkv = self.in_proj(x).view(batch, num_nodes, 3, self.num_heads, embed_dim // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, N, D]
        heads = self.attend(q, k, v, mask, bias)  # [B, H, N, D]
        return self.out_proj(heads.transpose(1, 2).reshape(batch, num_nodes, embed_dim))


class LayerSpec:
    """Self-attention and a feed-forward part, each with a residual sum and a LayerNorm, after the sum or before."""

    pre_norm: bool
    attention: Callable[[Tensor, Tensor | None, Tensor | None], Tensor]
    norm1: Callable[[Tensor], Tensor]
    linear1: Callable[[Tensor], Tensor]
    activation: Callable[[Tensor], Tensor]
    linear2: Callable[[Tensor], Tensor]
    norm2: Callable[[Tensor], Tensor]

    def forward(self, x: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        """[B, N, E] -> [B, N, E]; mask [N, N] bool, True = may attend; bias [N, N], added to all scores."""
        if self.pre_norm:
            x = x + self.attention(self.norm1(x), mask, bias)
            x = x + self.linear2(self.activation(self.linear1(self.norm2(x))))
        else:
            x = self.norm1(x + self.attention(x, mask, bias))
            x = self.norm2(x + self.linear2(self.activation(self.linear1(x))))
        return x


def encoder_stack(
    x: Tensor, parameters: Sequence[Tensor], mask: Tensor, masked: Sequence[bool], num_heads: int, eps: float = 1e-5
) -> Tensor:
    """Compute post-norm layers with ReLU, one after the other.

    Args:
        x: [B, N, E].
        parameters: one layer after the other, each in the order of `PARAMETERS`.
        mask: [N, N] bool, True = may attend.
        masked: whether each layer uses the mask.

    Returns:
        [B, N, E]
    """
    width = len(PARAMETERS)
    for k, is_masked in enumerate(masked):
        layer = FunctionalLayer(parameters[width * k : width * (k + 1)], num_heads, eps)
        x = layer.forward(x, mask if is_masked else None, None)
    return x


class FunctionalAttention(AttentionSpec):
    """Attention with given parameters of the input projection and of the output projection."""

    def __init__(self, parameters: Sequence[Tensor], num_heads: int) -> None:
        in_weight, in_bias, out_weight, out_bias = parameters
        self.num_heads, self.attend = num_heads, body_attention
        self.in_proj = partial(F.linear, weight=in_weight, bias=in_bias)
        self.out_proj = partial(F.linear, weight=out_weight, bias=out_bias)


class FunctionalLayer(LayerSpec):
    """A post-norm layer with ReLU and given parameters, in the order of `PARAMETERS`."""

    def __init__(self, parameters: Sequence[Tensor], num_heads: int, eps: float) -> None:
        norm1_weight, norm1_bias, up_weight, up_bias, down_weight, down_bias, norm2_weight, norm2_bias = parameters[4:]
        self.pre_norm, self.activation = False, F.relu
        self.attention = FunctionalAttention(parameters[:4], num_heads).forward
        self.linear1 = partial(F.linear, weight=up_weight, bias=up_bias)
        self.linear2 = partial(F.linear, weight=down_weight, bias=down_bias)
        layer_norm = partial(F.layer_norm, normalized_shape=norm1_weight.shape, eps=eps)
        self.norm1 = partial(layer_norm, weight=norm1_weight, bias=norm1_bias)
        self.norm2 = partial(layer_norm, weight=norm2_weight, bias=norm2_bias)
