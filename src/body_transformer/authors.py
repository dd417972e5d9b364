"""Load the imitation weights of the paper's authors into a Policy.

Both networks compute the same function with different names and shapes: theirs has one linear layer per node, ours one
matrix for all nodes. Their observations are normalised before the network, so the policy's normaliser stays unused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .body.layout import UNUSED, Layout
from .errors import listing
from .experiment import load_experiment
from .model.config import PolicyConfig
from .model.policy import Policy
from .model.storage import read_tensors

THEIR_NODE_NAMES = {"forearm": "forehand"}
"""Their names of nodes, where they differ from the robot file's."""

_KINDS = ("weight", "bias")
_LAYER_NAMES = {
    **{f"{part}.{kind}": f"{part}.{kind}" for part in ("linear1", "linear2", "norm1", "norm2") for kind in _KINDS},
    **{f"self_attn.in_proj_{kind}": f"attention.in_proj.{kind}" for kind in _KINDS},
    **{f"self_attn.out_proj.{kind}": f"attention.out_proj.{kind}" for kind in _KINDS},
}
"""Their name of a tensor in an encoder layer -> ours."""


def load(
    path: str | os.PathLike[str], experiment: str, variant: str = "bot-hard", num_heads: int | None = None
) -> Policy:
    """Return a policy with the weights of an authors' safetensors file.

    Args:
        path: the file.
        experiment: `mocapact`, `adroit-door`, `adroit-hammer` or `adroit-relocate`.
        variant: the architecture. It cannot be read from the file: hard, mix and plain transformers have the same
            tensors.
        num_heads: the number of attention heads, which cannot be read from the tensors. By default it is `num_heads` in
            the file's metadata, or else the experiment's value.
    """
    setting = load_experiment(experiment)
    if setting.critic:
        raise ValueError(
            f"experiment {experiment!r} is not an imitation experiment; the authors' weights come from one"
        )
    layout, config = setting.layout(), setting.policy_config(variant)
    if config.architecture.mask == "random":
        raise ValueError(f"variant {variant!r} cannot be loaded: its random masks differ from the authors'")
    theirs = _Tensors(Path(path))
    if num_heads is None:
        recorded = theirs.metadata.get("num_heads", str(config.num_heads))
        if not recorded.isdecimal():
            raise ValueError(f"{theirs.source}: its metadata has num_heads={recorded!r}, which is not a number")
        num_heads = int(recorded)
    config = _sizes(theirs, layout, config, num_heads)
    with torch.random.fork_rng(devices=[]):
        policy = Policy(layout, config)
    ours = policy.state_dict()
    _fill_tokenizer(ours, theirs, layout)
    if config.architecture.encoder == "mlp":
        _fill_mlp(ours, theirs)
    else:
        _fill_encoder(ours, theirs, config)
        _fill_detokenizer(ours, theirs, layout)
    if left := theirs.left_over(layout.graph.num_nodes):
        raise ValueError(f"{theirs.source} has tensors that {variant!r} does not: {listing(left)}")
    policy.load_state_dict(ours)
    return policy


class _Tensors:
    """Tensors of a file, with a record of those that were taken."""

    def __init__(self, path: Path) -> None:
        self.source = repr(str(path))
        if not path.is_file():
            raise FileNotFoundError(f"no weights at {self.source}")
        self._tensors, self.metadata = read_tensors(path)
        self._taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def shape(self, name: str) -> torch.Size:
        """Return the shape of a tensor that must exist."""
        if name not in self._tensors:
            raise ValueError(f"{self.source} has no tensor {name!r}; it has {listing(sorted(self._tensors))}")
        return self._tensors[name].shape

    def take(self, name: str, *shape: int) -> Tensor:
        """Return a tensor that must have this shape."""
        if self.shape(name) != shape:
            raise ValueError(f"{self.source}: {name} is {list(self.shape(name))}; expected {list(shape)}")
        self._taken.add(name)
        return self._tensors[name].float()

    def left_over(self, num_nodes: int) -> list[str]:
        """Return the names of tensors that were not taken.

        The frozen zero token, recorded inputs and outputs (`__…`), and buffers that follow from the body (indices,
        masks, shortest paths) do not count.
        """
        return sorted(
            name
            for name, tensor in self._tensors.items()
            if name not in self._taken
            and name != "tokenizer.zero_token"
            and not name.startswith("__")
            and tensor.is_floating_point()
            and tensor.shape != (num_nodes, num_nodes)
        )


def _sizes(theirs: _Tensors, layout: Layout, config: PolicyConfig, num_heads: int) -> PolicyConfig:
    """Return the configuration with the sizes of the tensors."""
    (embed_dim,) = theirs.shape(f"tokenizer.tokenizers.{_their_name(layout.graph.root)}.0.bias")
    if config.architecture.encoder == "mlp":
        return replace(config, embed_dim=embed_dim, mlp_dim=theirs.shape("net.model.0.bias")[0])
    num_layers = 0
    while f"net.encoder.layers.{num_layers}.linear1.bias" in theirs:
        num_layers += 1
    return replace(
        config,
        embed_dim=embed_dim,
        num_layers=max(num_layers, 1),
        num_heads=num_heads,
        ff_dim=theirs.shape("net.encoder.layers.0.linear1.bias")[0],
        positional_encoding="net.embed_absolute_position.weight" in theirs,
    )


def _fill_tokenizer(ours: dict[str, Tensor], theirs: _Tensors, layout: Layout) -> None:
    row_of_entry = np.cumsum(layout.obs_node_ids != UNUSED) - 1
    embed_dim = ours["tokenizer.bias"].shape[1]
    for k, node in enumerate(layout.graph.nodes):
        entries = layout.obs_ids(node)
        prefix = f"tokenizer.tokenizers.{_their_name(node)}.0"
        ours["tokenizer.weight"][row_of_entry[entries]] = theirs.take(f"{prefix}.weight", embed_dim, len(entries)).T
        ours["tokenizer.bias"][k] = theirs.take(f"{prefix}.bias", embed_dim)


def _fill_encoder(ours: dict[str, Tensor], theirs: _Tensors, config: PolicyConfig) -> None:
    names = {
        f"net.encoder.layers.{layer}.{their_name}": f"encoder.layers.{layer}.{our_name}"
        for layer in range(config.num_layers)
        for their_name, our_name in _LAYER_NAMES.items()
    }
    if config.positional_encoding:
        names["net.embed_absolute_position.weight"] = "encoder.position"
    _copy(ours, theirs, names)
    if config.architecture.hop_bias:
        hop_bias = ours["encoder.hop_bias"]
        hop_bias.copy_(theirs.take("net.sp_embeddings.weight", len(hop_bias), 1)[:, 0])


def _fill_detokenizer(ours: dict[str, Tensor], theirs: _Tensors, layout: Layout) -> None:
    embed_dim = ours["detokenizer.weight"].shape[1]
    for node in layout.graph.nodes:
        actions = layout.action_ids(node)
        prefix = f"detokenizer.detokenizers.{_their_name(node)}"
        if actions or f"{prefix}.weight" in theirs:
            ours["detokenizer.weight"][actions] = theirs.take(f"{prefix}.weight", len(actions), embed_dim)
            ours["detokenizer.bias"][actions] = theirs.take(f"{prefix}.bias", len(actions))


def _fill_mlp(ours: dict[str, Tensor], theirs: _Tensors) -> None:
    names = {f"net.model.{k}": f"encoder.layers.{k + 1}" for k in (0, 2, 4)}  # our layer 0 flattens
    names["detokenizer.detokenizers.global"] = "detokenizer.linear"
    _copy(ours, theirs, {f"{one}.{kind}": f"{two}.{kind}" for one, two in names.items() for kind in _KINDS})


def _copy(ours: dict[str, Tensor], theirs: _Tensors, names: Mapping[str, str]) -> None:
    """Copy tensors of equal shape; `names` maps their names to ours."""
    for their_name, our_name in names.items():
        ours[our_name].copy_(theirs.take(their_name, *ours[our_name].shape))


def _their_name(node: str) -> str:
    return THEIR_NODE_NAMES.get(node, node)
