"""Encoders and policies that are timed, this package's and its peers, with the same initial weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..body.layout import Layout
from ..experiment import load_experiment
from ..model.config import PolicyConfig
from ..model.encoder import Encoder, EncoderLayer
from ..model.policy import Policy
from ..model.variants import VariantName
from ..ops.body_attention import reference
from ..ops.encoder_stack import PARAMETERS
from .floors import encoder_flops, policy_flops
from .harness import Bench
from .steps import TimedModel


@dataclass(frozen=True)
class TimedExperiment:
    """One experiment's layout, architecture and encoder, from which every contender is built."""

    layout: Layout
    config: PolicyConfig
    encoder: Encoder

    @property
    def device(self) -> torch.device:
        return self.encoder.mask.device

    def draw(self, batch: int, count: int, seed: int) -> list[Tensor]:
        """Draw `count` sets of tokens [B, N, E]."""
        generator = torch.Generator(device=self.device).manual_seed(seed)
        shape = (batch, self.layout.graph.num_nodes, self.config.embed_dim)
        return [torch.randn(shape, generator=generator, device=self.device) for _ in range(count)]

    def in_float64(self) -> TimedExperiment:
        return replace(self, encoder=deepcopy(self.encoder).double())


def load_timed(name: str, device: str, max_layers: int = 99) -> TimedExperiment:
    """Load an experiment's architecture, cut to `max_layers`, with seeded weights."""
    experiment = load_experiment(name)
    layout, config = experiment.layout(), experiment.policy_config()
    config = replace(config, num_layers=min(config.num_layers, max_layers))
    torch.manual_seed(0)
    return TimedExperiment(layout, config, Encoder(layout.graph, config).to(device))


@dataclass(frozen=True)
class TimedKind:
    """One implementation of an encoder or a policy; each model it makes has its own copy of the weights."""

    title: str
    make: Callable[[TimedExperiment], TimedModel]
    flops: Callable[[TimedExperiment], int]
    """Function that counts the operations of one sample's forward pass."""
    compiled: bool = False
    """Whether it needs `torch.compile`."""
    fastest_only: bool = False
    """Whether it is timed only in the fastest precision, because it takes minutes to compile."""


def chosen_kinds(kinds: Mapping[str, TimedKind], bench: Bench) -> dict[str, TimedKind]:
    """Return the kinds to time: `ours`, and the peers that the run includes."""
    return {
        name: kind
        for name, kind in kinds.items()
        if name == "ours" or (bench.peers and (bench.compile_peers or not kind.compiled))
    }


# -- encoders ----------------------------------------------------------------------------------------------------------


def layers_of(encoder: Encoder) -> list[list[Tensor]]:
    """Return each layer's parameters, in the order of `PARAMETERS`."""
    return [layer.in_order() for layer in encoder.layers if isinstance(layer, EncoderLayer)]


def _ours(timed: TimedExperiment) -> TimedModel:
    encoder = deepcopy(timed.encoder)
    return TimedModel(encoder, list(encoder.layers.parameters()))


def _torch_layers(timed: TimedExperiment) -> TimedModel:
    """Use PyTorch's own `nn.TransformerEncoderLayer`."""
    encoder = timed.encoder
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


class PlainEncoder(nn.Module):
    """Encoder that runs the layers of another one as plain functions, with the same parameters."""

    def __init__(self, encoder: Encoder, attend: Any, compiled: bool) -> None:
        super().__init__()
        self.encoder, self.position = encoder, encoder.position
        self.parts = layers_of(encoder)
        self.attend = attend
        # one function for all layers, which is compiled twice: for layers with a mask and without one
        self.layer = torch.compile(_plain_layer, dynamic=False) if compiled else _plain_layer

    def forward(self, x: Tensor) -> Tensor:
        """Compute [B, N, E] -> [B, N, E]."""
        for parts, is_masked in zip(self.parts, self.encoder.masked, strict=True):
            x = self.layer(x, parts, self.encoder.mask if is_masked else None, self.encoder.num_heads, self.attend)
        return x


def _encoder_kind(title: str, make: Callable[[TimedExperiment], TimedModel], compiled: bool = False) -> TimedKind:
    return TimedKind(title, make, lambda timed: encoder_flops(timed.layout.graph, timed.config), compiled)


def _plain_kind(title: str, attend: Any, compiled: bool) -> TimedKind:
    def make(timed: TimedExperiment) -> TimedModel:
        model = PlainEncoder(deepcopy(timed.encoder), attend, compiled)
        return TimedModel(model, list(model.encoder.layers.parameters()))

    return _encoder_kind(f"plain layers, {title}", make, compiled)


PLAIN = _plain_kind("eager", reference.body_attention, compiled=False)
"""The reference of the accuracy tables; not timed."""
ENCODERS = {
    "torch": _encoder_kind("nn.TransformerEncoderLayer, eager", _torch_layers),
    "plain_sdpa": _plain_kind("SDPA, eager", F.scaled_dot_product_attention, compiled=False),
    "compiled_sdpa": _plain_kind("SDPA, compiled", F.scaled_dot_product_attention, compiled=True),
    "compiled_softmax": _plain_kind("matmul-softmax, compiled", reference.body_attention, compiled=True),
    "ours": _encoder_kind("ours", _ours),
}


# -- whole policies ----------------------------------------------------------------------------------------------------


def _use_reference(policy: Policy) -> None:
    policy.encoder.backend = "reference"  # type: ignore[assignment]  # a plain attribute of Encoder


def _compile_parts(policy: Policy) -> None:
    assert isinstance(policy.encoder, Encoder)
    policy.encoder = PlainEncoder(policy.encoder, reference.body_attention, compiled=True)
    for part in (policy.normalizer, policy.tokenizer, policy.detokenizer):
        part.compile(dynamic=False)


def _policy_kind(
    title: str,
    variant: VariantName | None = None,
    change: Callable[[Policy], None] = lambda policy: None,
    **settings: bool,
) -> TimedKind:
    """Return a policy with seeded weights: the experiment's own architecture, or another variant of it."""

    def config(timed: TimedExperiment) -> PolicyConfig:
        return replace(timed.config, variant=variant or timed.config.variant)

    def make(timed: TimedExperiment) -> TimedModel:
        torch.manual_seed(0)
        policy = Policy(timed.layout, config(timed)).to(timed.device)
        learned = [parameter for key, parameter in policy.named_parameters() if key != "log_std"]  # not in this loss
        change(policy)
        return TimedModel(policy, learned)

    return TimedKind(title, make, lambda timed: policy_flops(timed.layout, config(timed)), **settings)


POLICIES = {
    "mlp": _policy_kind("mlp, eager", "mlp"),
    "reference": _policy_kind("bot-mix, reference encoder, eager", change=_use_reference),
    "compiled": _policy_kind(
        "bot-mix, tokenizer, plain layers and detokenizer compiled",
        change=_compile_parts,
        compiled=True,
        fastest_only=True,
    ),
    "ours": _policy_kind("bot-mix, ours"),
}
