"""What a robot's computer runs: a Policy's function, from its weights, in as few operations as possible.

A policy that is called 50 times a second finds the caches cold and pays for every operation, and for every kind of it,
more than for its products. What is constant is computed here, once, in double precision; whoever exports the result
compares it with the policy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..model.encoder import Encoder, EncoderLayer, SelfAttention
from ..model.mlp import MLPEncoder
from ..model.policy import Policy

MAX_WHOLE = 1 << 18
"""Numbers in a matrix that is mostly zeros, up to which it replaces picking what each node needs."""
MAX_FOLDED_HEADS = 2
"""With more heads, the products of two projections have more numbers than the projections."""


def lean(policy: Policy) -> nn.Sequential:
    """[B, O] -> [B, A] in single precision, not learning; the policy is left as it is."""
    exact = copy.deepcopy(policy).cpu().double().requires_grad_(False)
    parts = _mlp(exact) if isinstance(exact.encoder, MLPEncoder) else _transformer(exact)
    return nn.Sequential(*parts, exact.squash).float().requires_grad_(False).eval()


def as_linear(affine: Callable[[Tensor], Tensor], size: int) -> nn.Linear:
    """The same as one product, for a function of [B, size] that is known to be affine; outputs are flattened."""
    with torch.no_grad():
        bias = affine(torch.zeros(1, size, dtype=torch.float64)).flatten()
        unit = torch.eye(size, dtype=torch.float64)
        rows = [affine(unit[k : k + 64]).flatten(1) - bias for k in range(0, size, 64)]
    return _linear(torch.cat(rows).T, bias)


def _mlp(policy: Policy) -> list[nn.Module]:
    """All is affine up to the first ReLU, and from the last one on."""
    assert isinstance(policy.encoder, MLPEncoder)
    first, relu, second, _, last, to_tokens = list(policy.encoder.layers)[1:]
    return [
        *_from_obs(policy, lambda obs: first(policy.tokenizer(obs).flatten(1))),
        relu,
        second,
        relu,
        as_linear(lambda hidden: policy.detokenizer(to_tokens(last(hidden))), policy.config.mlp_dim),
    ]


def _transformer(policy: Policy) -> list[nn.Module]:
    """Between the layers tokens are rows, [B N, E], whatever sample they belong to."""
    encoder = policy.encoder
    assert isinstance(encoder, Encoder)
    num_nodes, embed_dim = policy.layout.graph.num_nodes, policy.config.embed_dim
    position = torch.zeros(num_nodes, embed_dim) if encoder.position is None else encoder.position
    outputs: list[nn.Module] = [View(num_nodes, embed_dim), policy.detokenizer]
    if policy.obs_dim * num_nodes * embed_dim <= MAX_WHOLE:
        tokens = _from_obs(policy, lambda obs: policy.tokenizer(obs, position))
    else:
        tokens = [policy.normalizer, policy.tokenizer, Sum(position)]
    if policy.layout.action_dim * num_nodes * embed_dim <= MAX_WHOLE:
        size = num_nodes * embed_dim
        outputs = [View(size), as_linear(nn.Sequential(*outputs), size)]
    layers = [
        LeanLayer(layer, encoder, masked, num_nodes)
        for layer, masked in zip(encoder.layers, encoder.masked, strict=True)
        if isinstance(layer, EncoderLayer)
    ]
    return [*tokens, View(embed_dim), *layers, encoder.norm, *outputs]


def _from_obs(policy: Policy, affine: Callable[[Tensor], Tensor]) -> list[nn.Module]:
    """An affine function of the normalised observation; the scale becomes part of it, unless a bound is in between.

    The shift does not: a large mean with a small deviation would cancel in single precision.
    """
    product = as_linear(affine, policy.obs_dim)
    if policy.normalizer.clip is not None:
        return [policy.normalizer, product]
    product.weight /= policy.normalizer.scale
    return [Sum(-policy.normalizer.shift), product]


def _pair_bias(encoder: Encoder, masked: bool) -> Tensor | None:
    """[N, N] what is added to this layer's scores: -inf where the mask is, and the bias of the hops."""
    if not masked and encoder.hop_bias is None:
        return None
    bias = torch.zeros_like(encoder.mask, dtype=torch.float64)
    if encoder.hop_bias is not None:
        bias += encoder.hop_bias[encoder.hops]
    return bias.masked_fill(~encoder.mask, -torch.inf) if masked else bias


class LeanLayer(nn.Module):
    """[B N, E] -> [B N, E], an EncoderLayer's function."""

    def __init__(self, layer: EncoderLayer, encoder: Encoder, masked: bool, num_nodes: int) -> None:
        super().__init__()
        self.pre_norm, self.activation = layer.pre_norm, layer.activation
        folds, pair_bias = layer.attention.num_heads <= MAX_FOLDED_HEADS, _pair_bias(encoder, masked)
        self.attention = (FoldedAttention if folds else SplitAttention)(layer.attention, pair_bias, num_nodes)
        self.norm1, self.norm2 = layer.norm1, layer.norm2
        self.linear1, self.linear2 = layer.linear1, layer.linear2
        if not self.pre_norm:  # then norm1 adds linear2's bias, too: the residual sum is all that is left to add
            self.norm1.bias.add_(self.linear2.bias)
            self.linear1.bias.sub_(self.linear1.weight @ self.linear2.bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.pre_norm:
            x = x + self.attention(self.norm1(x))
            x = x + self.linear2(self.activation(self.linear1(self.norm2(x))))
        else:
            x = self.norm1(x + self.attention(x))
            hidden = self.activation(self.linear1(x))
            x = self.norm2(torch.addmm(x, hidden, self.linear2.weight.T))
        return x


class FoldedAttention(nn.Module):
    """A head's queries are compared with the tokens themselves, and its values are the tokens: nothing is transposed.

    q_i k_j = (x_i Wq' + bq) Wk x_j + …, where the rest is the same for every j, which the softmax does not see. The
    softmax sums to one, so the values' bias goes through unchanged. The products of weights are taken beforehand.
    """

    pair_bias: Tensor | None

    def __init__(self, attention: SelfAttention, pair_bias: Tensor | None, num_nodes: int) -> None:
        super().__init__()
        self.num_nodes, self.num_heads = num_nodes, attention.num_heads
        self.embed_dim = embed_dim = attention.out_proj.out_features
        size = embed_dim // self.num_heads
        wq, wk, wv = attention.in_proj.weight.view(3, self.num_heads, size, embed_dim)
        bq, _, bv = attention.in_proj.bias.view(3, self.num_heads, size)
        wo = attention.out_proj.weight.view(embed_dim, self.num_heads, size)
        wq, bq = wq * size**-0.5, bq * size**-0.5
        self.query = _linear(
            torch.einsum("hde,hdf->hfe", wq, wk).flatten(0, 1), torch.einsum("hd,hdf->hf", bq, wk).flatten()
        )
        self.out = _linear(
            torch.einsum("ohd,hde->ohe", wo, wv).flatten(1),
            attention.out_proj.bias + torch.einsum("ohd,hd->o", wo, bv),
        )
        rows = None if pair_bias is None else pair_bias.repeat_interleave(self.num_heads, 0)[None]
        self.register_buffer("pair_bias", rows)  # [1, N H, N]

    def forward(self, x: Tensor) -> Tensor:
        """[B N, E] -> [B N, E]"""
        tokens = x.view(-1, self.num_nodes, self.embed_dim)
        queries = self.query(x).view(-1, self.num_nodes * self.num_heads, self.embed_dim)
        scores = queries @ tokens.transpose(1, 2)  # [B, N H, N]
        if self.pair_bias is not None:
            scores = scores + self.pair_bias
        heads = torch.softmax(scores, -1) @ tokens  # [B, N H, E]
        out: Tensor = self.out(heads.view(-1, self.num_heads * self.embed_dim))
        return out


class SplitAttention(nn.Module):
    """Each head with its own queries, keys and values, which are transposed together."""

    pair_bias: Tensor | None

    def __init__(self, attention: SelfAttention, pair_bias: Tensor | None, num_nodes: int) -> None:
        super().__init__()
        self.num_nodes, self.num_heads = num_nodes, attention.num_heads
        self.embed_dim = attention.out_proj.out_features
        self.size = self.embed_dim // self.num_heads
        self.in_proj, self.out_proj = attention.in_proj, attention.out_proj
        self.in_proj.weight[: self.embed_dim] *= self.size**-0.5  # the queries
        self.in_proj.bias[: self.embed_dim] *= self.size**-0.5
        self.register_buffer("pair_bias", pair_bias)

    def forward(self, x: Tensor) -> Tensor:
        """[B N, E] -> [B N, E]"""
        all_heads = self.in_proj(x).view(-1, self.num_nodes, 3 * self.num_heads, self.size).transpose(1, 2)
        q, k, v = all_heads.split(self.num_heads, 1)  # [B, H, N, D]
        scores = q @ k.transpose(2, 3)  # [B, H, N, N]
        if self.pair_bias is not None:
            scores = scores + self.pair_bias
        heads = (torch.softmax(scores, -1) @ v).transpose(1, 2)
        out: Tensor = self.out_proj(heads.reshape(-1, self.embed_dim))
        return out


class View(nn.Module):
    """The same numbers as [B, *shape]."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(-1, *self.shape)


class Sum(nn.Module):
    """x + constant"""

    constant: Tensor

    def __init__(self, constant: Tensor) -> None:
        super().__init__()
        self.register_buffer("constant", constant)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.constant


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    """[out, in], [out]"""
    linear = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype).requires_grad_(False)
    linear.weight.copy_(weight)
    linear.bias.copy_(bias)
    return linear
