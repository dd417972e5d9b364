"""A policy's forward as a graph that a robot's computer runs in few operations.

A robot calls the policy 50 times a second with cold caches, and each operation costs more than its arithmetic. The
graph of the policy's own forward is captured by `torch.export`. The passes of `graph.py` and the algebraic rules below
rewrite it without changing the function it computes. Constants are computed once, in double precision.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.subgraph_rewriter import replace_pattern

from ..model.encoder import ACTIVATIONS, Encoder
from ..model.policy import Policy
from ..ops.encoder_stack.reference import FunctionalAttention
from .graph import (
    BATCH,
    capture,
    fold_constants,
    fold_first_product,
    fold_last_product,
    masks_as_sums,
    merge_rows,
    without_unused,
)

Activation = Callable[[Tensor], Tensor]

MAX_FOLDED_HEADS = 2
"""With more heads, the product of two projections has more entries than the projections, and takes longer."""


def rewritten(policy: Policy) -> fx.GraphModule:
    """Return [B, O] -> [B, A] in single precision with constant weights; the policy itself does not change."""
    exact = copy.deepcopy(policy).cpu().double().eval().requires_grad_(False)
    obs = torch.zeros(BATCH, policy.obs_dim, dtype=torch.float64)
    graph = capture(exact, obs)
    fold_constants(graph)
    if isinstance(policy.encoder, Encoder):
        masks_as_sums(graph)
        if policy.config.num_heads <= MAX_FOLDED_HEADS:
            sizes = policy.layout.graph.num_nodes, policy.config.embed_dim, policy.config.num_heads
            for rule in attention_rules(*sizes):
                replace_pattern(graph, *rule)
        fold_constants(graph)
    fold_first_product(graph, obs)
    fold_last_product(graph, obs)
    merge_rows(graph, obs)
    if isinstance(policy.encoder, Encoder):
        replace_pattern(
            graph, *feed_forward_rule(policy.config.embed_dim, policy.config.ff_dim, policy.config.activation)
        )
        fold_constants(graph)
    return without_unused(graph).float().eval()


@cache
def attention_rules(num_nodes: int, embed_dim: int, num_heads: int) -> list[tuple[fx.GraphModule, fx.GraphModule]]:
    """Return the graph of the specification's attention and that of its replacement, without and with a bias."""
    x = (BATCH, num_nodes, embed_dim)
    sizes = [(3 * embed_dim, embed_dim), (3 * embed_dim,), (embed_dim, embed_dim), (embed_dim,)]
    before, after = partial(attention, num_heads), partial(folded_attention, num_heads)
    return [
        (_captured(before, x, *sizes, *bias), _captured(after, x, *sizes, *bias))
        for bias in ([], [(num_nodes, num_nodes)])
    ]


@cache
def feed_forward_rule(embed_dim: int, ff_dim: int, activation: str) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Return the graph of a post-norm layer's feed-forward part, on rows [B N, E], and that of its replacement."""
    sizes = [(embed_dim,), (embed_dim,), (ff_dim, embed_dim), (ff_dim,), (embed_dim, ff_dim), (embed_dim,)]
    act, x = ACTIVATIONS[activation], (BATCH, embed_dim)
    return _captured(partial(feed_forward, act), x, *sizes), _captured(partial(merged_feed_forward, act), x, *sizes)


def attention(num_heads: int, x: Tensor, *parameters: Tensor) -> Tensor:
    """[B, N, E] -> [B, N, E], as the specification computes it; a last parameter [N, N] is added to the scores."""
    bias = parameters[4] if len(parameters) > 4 else None
    return FunctionalAttention(parameters[:4], num_heads).forward(x, None, bias)


def folded_attention(num_heads: int, x: Tensor, *parameters: Tensor) -> Tensor:
    """Compute the same without keys and values: a head compares queries with tokens, and averages tokens.

    q_i k_j = (x_i Wq' + bq) Wk x_j + …; the rest is equal for every j, and the softmax ignores it. The softmax sums to
    one, so the values' bias goes through unchanged. Nothing has to be transposed.
    """
    in_weight, in_bias, out_weight, out_bias, *bias = parameters
    _, num_nodes, embed_dim = x.shape
    size = embed_dim // num_heads
    wq, wk, wv = in_weight.view(3, num_heads, size, embed_dim).unbind(0)
    bq, _, bv = in_bias.view(3, num_heads, size).unbind(0)
    wq, bq = wq * size**-0.5, bq * size**-0.5
    wo = out_weight.view(embed_dim, num_heads, size)
    query_weight = torch.einsum("hde,hdf->hfe", wq, wk).flatten(0, 1)  # [H E, E]
    query_bias = torch.einsum("hd,hdf->hf", bq, wk).flatten()
    value_weight = torch.einsum("ohd,hde->ohe", wo, wv).flatten(1)  # [E, H E]
    value_bias = out_bias + torch.einsum("ohd,hd->o", wo, bv)

    queries = F.linear(x, query_weight, query_bias).reshape(-1, num_nodes * num_heads, embed_dim)
    scores = queries @ x.transpose(1, 2)  # [B, N H, N]
    if bias:
        scores = scores + bias[0].repeat_interleave(num_heads, 0)
    heads = torch.softmax(scores, -1) @ x  # [B, N H, E]
    return F.linear(heads.reshape(-1, num_nodes, num_heads * embed_dim), value_weight, value_bias)


def feed_forward(act: Activation, x: Tensor, *parameters: Tensor) -> Tensor:
    """[B N, E] -> [B N, E], a LayerNorm, then two linear layers with a residual connection."""
    weight, bias, up, up_bias, down, down_bias = parameters
    x = F.layer_norm(x, weight.shape, weight, bias)
    return x + F.linear(act(F.linear(x, up, up_bias)), down, down_bias)


def merged_feed_forward(act: Activation, x: Tensor, *parameters: Tensor) -> Tensor:
    """Compute the same with the second bias in the LayerNorm, so that the sum is part of the product."""
    weight, bias, up, up_bias, down, down_bias = parameters
    x = F.layer_norm(x, weight.shape, weight, bias + down_bias)
    return torch.addmm(x, act(F.linear(x, up, up_bias - up @ down_bias)), down.T)


def _captured(function: Callable[..., Tensor], x: tuple[int, ...], *constants: tuple[int, ...]) -> fx.GraphModule:
    """Return the graph of a function of tensors with these shapes."""
    return capture(_Module(function), *(torch.zeros(size, dtype=torch.float64) for size in (x, *constants)))


class _Module(nn.Module):
    """A function, for `torch.export`."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, *constants: Tensor) -> Tensor:
        return self.function(x, *constants)
