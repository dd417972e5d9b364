"""Encoders and policies that are timed, this package's and its peers, with the same initial weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..body.layout import Layout
from ..experiment import load_experiment
from ..model.config import PolicyConfig
from ..model.encoder import Encoder, EncoderLayer
from ..model.policy import Policy
from ..ops.body_attention import reference
from ..ops.encoder_stack import PARAMETERS
from .steps import TimedModel


@dataclass(frozen=True)
class TimedExperiment:
    """One experiment's layout, architecture and encoder, from which every contender is built."""

    layout: Layout
    config: PolicyConfig
    encoder: Encoder

    def draw(self, batch: int, count: int, seed: int) -> list[Tensor]:
        """Draw `count` sets of tokens [B, N, E]."""
        device = self.encoder.mask.device
        generator = torch.Generator(device=device).manual_seed(seed)
        shape = (batch, self.layout.graph.num_nodes, self.config.embed_dim)
        return [torch.randn(shape, generator=generator, device=device) for _ in range(count)]


def load_timed(name: str, device: str, max_layers: int = 99) -> TimedExperiment:
    """Load an experiment's architecture, cut to `max_layers`, with seeded weights."""
    experiment = load_experiment(name)
    layout, config = experiment.layout(), experiment.policy_config()
    config = replace(config, num_layers=min(config.num_layers, max_layers))
    torch.manual_seed(0)
    return TimedExperiment(layout, config, Encoder(layout.graph, config).to(device))


# -- encoders ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EncoderKind:
    """One way to run an encoder; each model it makes has its own copy of the weights."""

    title: str
    make: Callable[[Encoder], TimedModel]
    compiled: bool = False


def layers_of(encoder: Encoder) -> list[list[Tensor]]:
    """Return each layer's parameters, in the order of `PARAMETERS`."""
    return [layer.in_order() for layer in encoder.layers if isinstance(layer, EncoderLayer)]


def _ours(encoder: Encoder) -> TimedModel:
    encoder = deepcopy(encoder)
    return TimedModel(encoder, list(encoder.layers.parameters()))


def _torch_layers(encoder: Encoder) -> TimedModel:
    """Use PyTorch's own `nn.TransformerEncoderLayer`."""
    layers = nn.ModuleList(_torch_layer(parts, encoder.num_heads) for parts in layers_of(encoder))
    layers.eval()  # there is no dropout, and without gradients PyTorch then takes its fast path
    masks = [~encoder.mask if is_masked else None for is_masked in encoder.masked]  # there, True = may not attend

    def forward(x: Tensor) -> Tensor:
        for layer, mask in zip(layers, masks, strict=True):
            x = layer(x, src_mask=mask)
        return x

    return TimedModel(forward, list(layers.parameters()))


def _torch_layer(parts: Sequence[Tensor], num_heads: int) -> nn.Module:
    embed_dim, ff_dim = parts[0].shape[1], parts[6].shape[0]
    layer = nn.TransformerEncoderLayer(embed_dim, num_heads, ff_dim, dropout=0.0, batch_first=True)
    names = ["self_attn.in_proj_weight", "self_attn.in_proj_bias", "self_attn.out_proj.weight"]
    names += ["self_attn.out_proj.bias", *PARAMETERS[4:]]
    layer.load_state_dict(dict(zip(names, parts, strict=True)))
    return layer.to(parts[0].device)


def _plain_layer(x: Tensor, parts: Sequence[Tensor], mask: Tensor | None, num_heads: int, attend: Any) -> Tensor:
    """Compute one layer, [B, N, E] -> [B, N, E], in plain functions that the compiler can trace as a whole."""
    in_w, in_b, out_w, out_b, norm1_w, norm1_b, up_w, up_b, down_w, down_b, norm2_w, norm2_b = parts
    batch, nodes, width = x.shape
    qkv = F.linear(x, in_w, in_b).view(batch, nodes, 3, num_heads, width // num_heads).permute(2, 0, 3, 1, 4)
    heads = attend(qkv[0], qkv[1], qkv[2], mask).transpose(1, 2).reshape(batch, nodes, width)
    x = F.layer_norm(x + F.linear(heads, out_w, out_b), (width,), norm1_w, norm1_b)
    return F.layer_norm(x + F.linear(F.relu(F.linear(x, up_w, up_b)), down_w, down_b), (width,), norm2_w, norm2_b)


def compiled_layer() -> Any:
    """Return one function for all layers, which is compiled twice: for layers with a mask and without one."""
    return torch.compile(_plain_layer, dynamic=False)


class PlainEncoder(nn.Module):
    """Encoder that runs the layers of another one as plain functions, with the same parameters."""

    def __init__(self, encoder: Encoder, attend: Any, compiled: bool) -> None:
        super().__init__()
        self.encoder, self.position = encoder, encoder.position
        self.parts = layers_of(encoder)
        self.attend, self.layer = attend, compiled_layer() if compiled else _plain_layer

    def forward(self, x: Tensor) -> Tensor:
        """Compute [B, N, E] -> [B, N, E]."""
        for parts, is_masked in zip(self.parts, self.encoder.masked, strict=True):
            x = self.layer(x, parts, self.encoder.mask if is_masked else None, self.encoder.num_heads, self.attend)
        return x


def _plain_layers(encoder: Encoder, attend: Any, compiled: bool) -> TimedModel:
    model = PlainEncoder(deepcopy(encoder), attend, compiled)
    return TimedModel(model, list(model.encoder.layers.parameters()))


def _plain_kind(title: str, attend: Any, compiled: bool) -> EncoderKind:
    return EncoderKind(f"plain layers, {title}", partial(_plain_layers, attend=attend, compiled=compiled), compiled)


OURS = EncoderKind("ours", _ours)
PLAIN = _plain_kind("eager", reference.body_attention, compiled=False)
"""The reference of the accuracy tables; not timed."""
PEERS = {
    "torch": EncoderKind("nn.TransformerEncoderLayer, eager", _torch_layers),
    "plain_sdpa": _plain_kind("SDPA, eager", F.scaled_dot_product_attention, compiled=False),
    "compiled_sdpa": _plain_kind("SDPA, compiled", F.scaled_dot_product_attention, compiled=True),
    "compiled_softmax": _plain_kind("matmul-softmax, compiled", reference.body_attention, compiled=True),
}


def encoder_kinds(peers: bool, compile_peers: bool) -> dict[str, EncoderKind]:
    """Return the encoders to time, this package's last."""
    chosen = {name: kind for name, kind in PEERS.items() if peers and (compile_peers or not kind.compiled)}
    return chosen | {"ours": OURS}


# -- whole policies ----------------------------------------------------------------------------------------------------

POLICY_TITLES = {
    "mlp": "mlp, eager",
    "reference": "bot-mix, reference encoder, eager",
    "compiled": "bot-mix, tokenizer, plain layers and detokenizer compiled",
    "ours": "bot-mix, ours",
}


def config_of(name: str, config: PolicyConfig) -> PolicyConfig:
    return replace(config, variant="mlp") if name == "mlp" else config


def build_policy(name: str, timed: TimedExperiment, device: str) -> TimedModel:
    """Build one of POLICY_TITLES with seeded weights."""
    torch.manual_seed(0)
    policy = Policy(timed.layout, config_of(name, timed.config)).to(device)
    learned = [parameter for key, parameter in policy.named_parameters() if key != "log_std"]  # not in this loss
    if name == "reference":
        policy.encoder.backend = "reference"  # type: ignore[assignment]  # a plain attribute of Encoder
    elif name == "compiled":
        assert isinstance(policy.encoder, Encoder)
        policy.encoder = PlainEncoder(policy.encoder, reference.body_attention, compiled=True)
        for part in (policy.normalizer, policy.tokenizer, policy.detokenizer):
            part.compile(dynamic=False)
    return TimedModel(policy, learned)
