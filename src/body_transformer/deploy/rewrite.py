"""A policy's forward as a graph that a robot's computer runs in few operations.

A robot calls the policy 50 times a second with cold caches, and each operation costs more than its arithmetic. The
graph of the policy's own forward is captured by `torch.export`. The passes of `graph.py` and a replacement of the
attention rewrite it without changing the function it computes. Constants are computed once, in double precision.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.subgraph_rewriter import replace_pattern

from ..model.encoder import Encoder
from ..model.policy import Policy
from ..ops.encoder_stack.reference import FunctionalAttention
from .graph import (
    BATCH,
    capture,
    fold_constants,
    fold_first_product,
    fold_last_product,
    merge_rows,
    without_unused,
)

MAX_FOLDED_HEADS = 2
"""With more heads, the product of two projections has more entries than the projections, and takes longer."""


def rewritten(policy: Policy) -> fx.GraphModule:
    """Return [B, O] -> [B, A] in single precision with constant weights; the policy itself does not change."""
    exact = copy.deepcopy(policy).cpu().double().eval().requires_grad_(False)
    obs = torch.zeros(BATCH, policy.obs_dim, dtype=torch.float64)
    graph = capture(exact, obs)
    if isinstance(policy.encoder, Encoder) and policy.config.num_heads <= MAX_FOLDED_HEADS:
        for rule in attention_rules(policy.layout.graph.num_nodes, policy.config.embed_dim, policy.config.num_heads):
            replace_pattern(graph, *rule)
    fold_constants(graph)
    fold_first_product(graph, obs)
    fold_last_product(graph, obs)
    merge_rows(graph, obs)
    return without_unused(graph).float().eval()


@cache
def attention_rules(num_nodes: int, embed_dim: int, num_heads: int) -> list[tuple[fx.GraphModule, fx.GraphModule]]:
    """Return the graph of the specification's attention and of its replacement: plain, with a mask, with a bias."""
    x = (BATCH, num_nodes, embed_dim)
    sizes = [(3 * embed_dim, embed_dim), (3 * embed_dim,), (embed_dim, embed_dim), (embed_dim,)]
    inputs = [torch.zeros(size, dtype=torch.float64) for size in (x, *sizes)]
    pairs = torch.zeros(num_nodes, num_nodes)
    before, after = (_Module(partial(function, num_heads)) for function in (attention, folded_attention))
    return [
        (capture(before, *inputs, *last), capture(after, *inputs, *last))
        for last in ([], [pairs.bool()], [pairs.double()])
    ]


def attention(num_heads: int, x: Tensor, *parameters: Tensor) -> Tensor:
    """[B, N, E] -> [B, N, E], as the specification computes it; a last parameter [N, N] is the mask or the bias."""
    layer = FunctionalAttention(parameters[:4], num_heads)
    mask_or_bias = parameters[4] if len(parameters) > 4 else None
    if mask_or_bias is not None and mask_or_bias.dtype == torch.bool:
        return layer.forward(x, mask_or_bias, None)
    return layer.forward(x, None, mask_or_bias)


def folded_attention(num_heads: int, x: Tensor, *parameters: Tensor) -> Tensor:
    """Compute the same without keys and values: a head compares queries with tokens, and averages tokens.

    q_i k_j = (x_i Wq' + bq) Wk x_j + …; the rest is equal for every j, and the softmax ignores it. The softmax sums to
    one, so the values' bias goes through unchanged. Nothing has to be transposed. A mask becomes a sum with 0 or -inf.
    """
    in_weight, in_bias, out_weight, out_bias, *mask_or_bias = parameters
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
    for added in mask_or_bias:
        if added.dtype == torch.bool:
            added = torch.zeros_like(added, dtype=x.dtype).masked_fill(~added, -torch.inf)
        scores = scores + added.repeat_interleave(num_heads, 0)
    heads = torch.softmax(scores, -1) @ x  # [B, N H, E]
    return F.linear(heads.reshape(-1, num_nodes, num_heads * embed_dim), value_weight, value_bias)


class _Module(nn.Module):
    """A function, for `torch.export`."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, *constants: Tensor) -> Tensor:
        return self.function(x, *constants)
