"""The transformer encoder over body parts."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..body.graph import BodyGraph
from ..ops.body_attention.reference import body_attention
from .config import PolicyConfig
from .mask import MASKS

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class Encoder(nn.Module):
    """[B, N, E] -> [B, N, E]; which layers see the mask is the variant's choice."""

    mask: Tensor
    hops: Tensor

    def __init__(self, graph: BodyGraph, config: PolicyConfig) -> None:
        super().__init__()
        variant = config.architecture
        mask = MASKS[variant.mask](graph, config.mask_seed)
        self.register_buffer("mask", torch.tensor(mask), persistent=False)  # True = may attend
        self.register_buffer("hops", torch.tensor(graph.hops), persistent=False)
        self.layers = nn.ModuleList(EncoderLayer(config, variant.is_masked(k)) for k in range(config.num_layers))
        self.norm = nn.LayerNorm(config.embed_dim) if config.norm == "pre" else nn.Identity()
        self.position = None
        if config.positional_encoding:
            self.position = nn.Parameter(torch.randn(graph.num_nodes, config.embed_dim))
        self.hop_bias = nn.Parameter(torch.zeros(graph.diameter + 1)) if variant.hop_bias else None  # drawn in build.py

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, N, E] -> [B, N, E]"""
        if self.position is not None:
            tokens = tokens + self.position
        bias = None if self.hop_bias is None else self.hop_bias[self.hops]  # [N, N]
        for layer in self.layers:
            tokens = layer(tokens, self.mask, bias)
        out: Tensor = self.norm(tokens)
        return out


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward part, each with a residual sum and a LayerNorm."""

    def __init__(self, config: PolicyConfig, masked: bool) -> None:
        super().__init__()
        self.masked = masked
        self.pre_norm = config.norm == "pre"
        self.attention = SelfAttention(config.embed_dim, config.num_heads)
        self.norm1 = nn.LayerNorm(config.embed_dim)
        self.linear1 = nn.Linear(config.embed_dim, config.ff_dim)
        self.linear2 = nn.Linear(config.ff_dim, config.embed_dim)
        self.norm2 = nn.LayerNorm(config.embed_dim)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor, mask: Tensor, bias: Tensor | None) -> Tensor:
        """[B, N, E] -> [B, N, E]; the mask counts if this layer is a masked one."""
        layer_mask = mask if self.masked else None
        if self.pre_norm:
            x = x + self.attention(self.norm1(x), layer_mask, bias)
            x = x + self._feed_forward(self.norm2(x))
        else:
            x = self.norm1(x + self.attention(x, layer_mask, bias))
            x = self.norm2(x + self._feed_forward(x))
        return x

    def _feed_forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear2(self.activation(self.linear1(x)))
        return out


class SelfAttention(nn.Module):
    """Multi-head attention of the tokens among themselves."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj = nn.Linear(embed_dim, 3 * embed_dim)  # queries, keys, values
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        # as nn.MultiheadAttention starts
        nn.init.xavier_uniform_(self.in_proj.weight)
        nn.init.zeros_(self.in_proj.bias)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, x: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        """[B, N, E] -> [B, N, E]"""
        batch, num_nodes, embed_dim = x.shape
        qkv = self.in_proj(x).view(batch, num_nodes, 3, self.num_heads, embed_dim // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, N, D]
        heads = body_attention(q, k, v, mask, bias)
        out: Tensor = self.out_proj(heads.transpose(1, 2).reshape(batch, num_nodes, embed_dim))
        return out
