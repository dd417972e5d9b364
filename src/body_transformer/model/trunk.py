"""The trunk that policies and critics share: observation -> tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..body.layout import UNUSED, Layout
from .config import PolicyConfig
from .detokenizer import Detokenizer, SharedDetokenizer
from .encoder import Encoder
from .init import init_encoder, init_tokenizer
from .mlp import FlatDetokenizer, MLPEncoder
from .normalizer import Normalizer, RunningStatistics
from .tokenizer import SharedTokenizer, Tokenizer

Precision = Literal["fp32", "tf32", "bf16"]
MAX_PARAMETERS = 2**28
"""Largest number of parameters of a policy or critic: 1 GiB in single precision."""
MAX_SLOTS = 2**24
"""Largest product of the number of nodes and the entries of the node that has most."""


class Trunk(nn.Module):
    """Normalizer, tokenizer and encoder, and the detokenizer that reads their tokens.

    Each part is initialised before the next is built, and the encoder comes last. With one seed, the weights that two
    variants have in common are therefore equal.
    """

    __jit_unused_properties__ = ("num_parameters",)  # TorchScript would try to compile the property

    def __init__(self, layout: Layout, config: PolicyConfig, output_node_ids: Sequence[int]) -> None:
        """Build the parts; `output_node_ids` holds the node of each output."""
        super().__init__()
        check_size(layout, config, len(output_node_ids))
        self.layout = layout
        self.config = config
        self.obs_dim = layout.obs_dim
        self.precision: Precision = "fp32"  # of the encoder's products on a GPU; "fp32" keeps PyTorch's own settings
        self.normalizer = Normalizer(layout.obs_dim, config.obs_clip)
        self.tokenizer = build_tokenizer(layout, config)
        self.detokenizer = build_detokenizer(layout, config, output_node_ids)
        self.encoder = build_encoder(layout, config)

    def encode(self, obs: Tensor) -> Tensor:
        """[B, O] -> [B, N, E]"""
        check_obs(obs, self.obs_dim)
        obs = self.normalizer(obs)
        tokens = self.tokenizer(obs, self.encoder.position)  # [B, N, E], the positional encoding included
        tokens = self.encoder(tokens) if torch.jit.is_scripting() else self._run_encoder(tokens)  # type: ignore
        return tokens  # noqa: RET504, TorchScript needs the name's type

    @torch.jit.unused
    def _run_encoder(self, tokens: Tensor) -> Tensor:
        if self.precision == "fp32" or not tokens.is_cuda:
            out: Tensor = self.encoder(tokens)
            return out
        with _products_in(self.precision):
            out = self.encoder(tokens)
        return out.to(tokens.dtype)

    @torch.jit.unused
    def fit_normalizer(self, obs: Tensor | npt.NDArray[Any]) -> None:
        """Set the normaliser to the mean and variance of these observations [B, O], a tensor or a NumPy array."""
        statistics = RunningStatistics(self.obs_dim)
        statistics.update(torch.as_tensor(obs))
        self.normalizer.set_statistics(statistics.mean, statistics.var)

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(parameter.numel() for parameter in self.parameters())


def check_arguments(kind: str, layout: Layout, config: PolicyConfig | None) -> PolicyConfig:
    """Return the given or the default configuration; raise an error that names an argument of a wrong type."""
    if not isinstance(layout, Layout):
        raise ValueError(
            f"{kind} takes a Layout; got {type(layout).__name__}: Layout.proprioceptive(graph) is one for most robots, "
            "and Layout(graph, obs=[…], actions=…) names the terms"
        )
    if config is not None and not isinstance(config, PolicyConfig):
        raise ValueError(
            f"{kind} takes a PolicyConfig; got {type(config).__name__}: write {kind}(layout, PolicyConfig(…))"
        )
    return config or PolicyConfig()


def check_size(layout: Layout, config: PolicyConfig, num_outputs: int) -> None:
    """Refuse a policy that is too large, by arithmetic alone: a wrong size in a file must not exhaust the memory."""
    nodes, entries, embed, ff = layout.graph.num_nodes, layout.obs_dim, config.embed_dim, config.ff_dim
    number = (nodes + entries) * embed
    if config.architecture.encoder == "mlp":
        number += (2 * nodes * embed + config.mlp_dim) * config.mlp_dim + nodes * embed * num_outputs
    else:
        number += config.num_layers * (4 * embed + 2 * ff) * embed + (nodes + num_outputs) * embed
    if number > MAX_PARAMETERS:
        raise ValueError(f"a policy may have at most {MAX_PARAMETERS:,} parameters; this one has about {number:,}")
    owners = (layout.obs_node_ids, layout.action_node_ids)
    largest = max(int(np.bincount(ids[ids != UNUSED], minlength=1).max()) for ids in owners)
    if nodes * largest > MAX_SLOTS:
        raise ValueError(
            f"nodes are padded to the entries of the node that has most: {nodes:,} nodes x {largest:,} entries; "
            f"the limit is {MAX_SLOTS:,}"
        )


def build_tokenizer(layout: Layout, config: PolicyConfig) -> nn.Module:
    """Return the module that computes [B, O] -> [B, N, E]."""
    kind = SharedTokenizer if config.shared_tokenizer else Tokenizer
    tokenizer = kind(layout, config.embed_dim)
    init_tokenizer(tokenizer, config.init)
    return tokenizer


def build_encoder(layout: Layout, config: PolicyConfig) -> nn.Module:
    """Return the module that computes [B, N, E] -> [B, N, E]."""
    is_mlp = config.architecture.encoder == "mlp"
    num_nodes = layout.graph.num_nodes
    encoder = MLPEncoder(num_nodes, config.embed_dim, config.mlp_dim) if is_mlp else Encoder(layout.graph, config)
    init_encoder(encoder, config.init)
    return encoder


def build_detokenizer(
    layout: Layout, config: PolicyConfig, node_ids: Sequence[int]
) -> Detokenizer | SharedDetokenizer | FlatDetokenizer:
    """Return the module that computes [B, N, E] -> [B, A]; output j belongs to node `node_ids[j]`."""
    detokenizer: Detokenizer | SharedDetokenizer | FlatDetokenizer
    num_nodes = layout.graph.num_nodes
    if config.architecture.encoder == "mlp":
        detokenizer = FlatDetokenizer(num_nodes, config.embed_dim, len(node_ids))
    else:
        kind = SharedDetokenizer if config.shared_tokenizer else Detokenizer
        detokenizer = kind(node_ids, config.embed_dim, num_nodes)
    init_tokenizer(detokenizer, config.init)
    return detokenizer


def check_tensor(obs: object, obs_dim: int) -> None:
    """Refuse observations that are not a tensor, such as a NumPy array."""
    if not isinstance(obs, Tensor):
        given = type(obs).__name__
        raise ValueError(
            f"obs must be a torch.Tensor [B, {obs_dim}]; got {given}: torch.as_tensor(obs) converts arrays"
        )


def check_obs(obs: Tensor, obs_dim: int) -> None:
    """Refuse observations of another shape than [B, obs_dim]."""
    if not torch.jit.is_scripting():  # type: ignore
        check_tensor(obs, obs_dim)
    # In a trace, sizes are tensors. The comment for mypy is bare, because TorchScript refuses longer ones.
    if torch.jit.is_tracing():  # type: ignore
        return
    if obs.ndim != 2 or obs.shape[1] != obs_dim:
        raise ValueError(f"obs must be [B, {obs_dim}]; got {list(obs.shape)}")


@contextmanager
def _products_in(precision: Precision) -> Iterator[None]:
    """Run CUDA matrix products in bf16 (autocast) or TF32; the previous setting is restored at the end."""
    if precision == "bf16":
        with torch.autocast("cuda", torch.bfloat16):
            yield
        return
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
