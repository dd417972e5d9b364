"""The whole encoder, ours and its peers, all from the same weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..model.config import PolicyConfig
from ..model.encoder import Encoder, EncoderLayer
from ..ops.encoder_stack import PARAMETERS, encoder_stack


@dataclass(frozen=True)
class Weights:
    """An encoder, taken apart: what every contender starts from."""

    parameters: list[Tensor]
    """Of one layer after the other, each in the order of ops.encoder_stack."""
    mask: Tensor
    masked: list[bool]
    """For each layer, whether the mask counts."""
    num_heads: int

    def copy(self) -> Weights:
        """Leaves of their own, so that a contender's optimiser moves nobody else's."""
        leaves = [parameter.detach().clone().requires_grad_() for parameter in self.parameters]
        return Weights(leaves, self.mask, self.masked, self.num_heads)

    def double(self) -> Weights:
        """The same in float64."""
        return Weights([parameter.double() for parameter in self.parameters], self.mask, self.masked, self.num_heads)

    def layers(self) -> list[list[Tensor]]:
        width = len(PARAMETERS)
        return [self.parameters[k : k + width] for k in range(0, len(self.parameters), width)]

    def masks(self) -> list[Tensor | None]:
        return [self.mask if is_masked else None for is_masked in self.masked]


def take_apart(encoder: Encoder, config: PolicyConfig, device: str) -> Weights:
    parameters = [layer.get_parameter(name).detach().to(device) for layer in encoder.layers for name in PARAMETERS]
    masked = [config.architecture.is_masked(k) for k in range(config.num_layers)]
    return Weights(parameters, encoder.mask.to(device), masked, config.num_heads)


@dataclass(frozen=True)
class Stack:
    """A whole encoder as a function, and what it learns."""

    forward: Callable[[Tensor], Tensor]
    """[B, N, E] -> [B, N, E]"""
    parameters: Sequence[Tensor]


@dataclass(frozen=True)
class StackKind:
    """One way to run the encoder, at a precision (a key of arithmetic.PRECISIONS)."""

    title: str
    make: Callable[[Weights, str], Stack]
    compiled: bool = False


# -- ours --------------------------------------------------------------------------------------------------------------


def _ours(weights: Weights, precision: str) -> Stack:
    parts = weights.copy()

    def forward(x: Tensor) -> Tensor:
        out: Tensor = encoder_stack(x, parts.parameters, parts.mask, parts.masked, parts.num_heads, precision=precision)
        return out

    return Stack(forward, parts.parameters)


# -- PyTorch's own layers ----------------------------------------------------------------------------------------------


def _torch_layers(weights: Weights, precision: str) -> Stack:
    layers = nn.ModuleList(_torch_layer(parts, weights.num_heads) for parts in weights.layers())
    layers.eval()  # there is no dropout, and without gradients PyTorch then takes its fast path
    masks = [None if mask is None else ~mask for mask in weights.masks()]  # there, True = may not attend

    def forward(x: Tensor) -> Tensor:
        for layer, mask in zip(layers, masks, strict=True):
            x = layer(x, src_mask=mask)
        return x

    return Stack(forward, list(layers.parameters()))


def _torch_layer(parts: Sequence[Tensor], num_heads: int) -> nn.Module:
    embed_dim, ff_dim = parts[0].shape[1], parts[6].shape[0]
    layer = nn.TransformerEncoderLayer(embed_dim, num_heads, ff_dim, dropout=0.0, batch_first=True)
    names = ["self_attn.in_proj_weight", "self_attn.in_proj_bias", "self_attn.out_proj.weight"]
    names += ["self_attn.out_proj.bias", *PARAMETERS[4:]]
    layer.load_state_dict(dict(zip(names, parts, strict=True)))
    return layer.to(parts[0].device)


# -- layers written by hand --------------------------------------------------------------------------------------------


def _sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _softmax(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def _plain_layer(x: Tensor, parts: Sequence[Tensor], mask: Tensor | None, num_heads: int, attend: Any) -> Tensor:
    """[B, N, E] -> [B, N, E], with nothing around it that a compiler would stumble over."""
    in_w, in_b, out_w, out_b, norm1_w, norm1_b, up_w, up_b, down_w, down_b, norm2_w, norm2_b = parts
    batch, nodes, width = x.shape
    qkv = F.linear(x, in_w, in_b).view(batch, nodes, 3, num_heads, width // num_heads).permute(2, 0, 3, 1, 4)
    heads = attend(qkv[0], qkv[1], qkv[2], mask).transpose(1, 2).reshape(batch, nodes, width)
    x = F.layer_norm(x + F.linear(heads, out_w, out_b), (width,), norm1_w, norm1_b)
    return F.layer_norm(x + F.linear(F.relu(F.linear(x, up_w, up_b)), down_w, down_b), (width,), norm2_w, norm2_b)


def compiled_layer() -> Any:
    """One function for all layers: it is compiled once with a mask and once without, however many layers there are."""
    return torch.compile(_plain_layer, dynamic=False)


class CompiledLayer(nn.Module):
    """Takes the place of a layer of `model.encoder`, with its parameters; `run` is `compiled_layer()`, for all."""

    def __init__(self, layer: EncoderLayer, num_heads: int, run: Any) -> None:
        super().__init__()
        self.layer, self.num_heads, self.run = layer, num_heads, run

    def forward(self, x: Tensor, mask: Tensor, bias: Tensor | None) -> Tensor:
        """[B, N, E] -> [B, N, E]; a bias is no part of the plain layer."""
        own = mask if self.layer.masked else None
        out: Tensor = self.run(x, self.layer.in_order(), own, self.num_heads, _softmax)
        return out


def _plain_layers(attend: Any, compiled: bool) -> Callable[[Weights, str], Stack]:
    def make(weights: Weights, precision: str) -> Stack:
        parts = weights.copy()
        layer: Any = compiled_layer() if compiled else _plain_layer

        def forward(x: Tensor) -> Tensor:
            for own, mask in zip(parts.layers(), parts.masks(), strict=True):
                x = layer(x, own, mask, parts.num_heads, attend)
            return x

        return Stack(forward, parts.parameters)

    return make


OURS = StackKind("ours", _ours)
PLAIN = StackKind("plain layers, eager", _plain_layers(_softmax, compiled=False))
PEERS = {
    "torch": StackKind("nn.TransformerEncoderLayer, eager", _torch_layers),
    "plain_sdpa": StackKind("plain layers, SDPA, eager", _plain_layers(_sdpa, compiled=False)),
    "compiled_sdpa": StackKind("plain layers, SDPA, compiled", _plain_layers(_sdpa, compiled=True), compiled=True),
    "compiled_softmax": StackKind(
        "plain layers, matmul-softmax, compiled", _plain_layers(_softmax, compiled=True), compiled=True
    ),
}


def stack_kinds(peers: bool, compile_peers: bool) -> dict[str, StackKind]:
    """Who takes part, ours last."""
    chosen = {name: kind for name, kind in PEERS.items() if peers and (compile_peers or not kind.compiled)}
    return chosen | {"ours": OURS}
