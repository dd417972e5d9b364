"""Load the imitation weights of the paper's authors into a Policy.

Both networks compute the same function with different names and shapes: theirs has one linear layer per node, ours one
matrix for all nodes. Their observations are normalised before the network, so the policy's normaliser stays unused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .body.layout import UNUSED, Layout
from .errors import listing
from .experiment import load_experiment
from .model.config import PolicyConfig
from .model.policy import Policy
from .model.tensor_files import read_tensors

THEIR_NODE_NAMES = {"forearm": "forehand"}
"""Their names of nodes, where they differ from the robot file's."""
Place = tuple[Tensor, Any]
"""A tensor of ours, and the index of the part that a tensor of theirs fills."""

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
    source = repr(os.fspath(path))
    if not Path(path).is_file():
        raise FileNotFoundError(f"no weights at {source}")
    theirs, metadata = read_tensors(Path(path))
    if num_heads is None:
        recorded = metadata.get("num_heads", str(config.num_heads))
        if not recorded.isdecimal():
            raise ValueError(f"{source}: its metadata has num_heads={recorded!r}, which is not a number")
        num_heads = int(recorded)
    config = _sizes(theirs, source, layout, config, num_heads)
    with torch.random.fork_rng(devices=[]):
        policy = Policy(layout, config)
    places = _places(policy, theirs)
    for name, (ours, index) in places.items():
        given, wanted = _shape(theirs, name, source), ours[index].shape
        if given != wanted:
            raise ValueError(f"{source}: {name} is {list(given)}; expected {list(wanted)}")
        ours[index] = theirs[name].float()
    left_over = [name for name, tensor in theirs.items() if name not in places and _counts(name, tensor, layout)]
    if left_over:
        raise ValueError(f"{source} has tensors that {variant!r} does not: {listing(sorted(left_over))}")
    return policy


def _shape(theirs: Mapping[str, Tensor], name: str, source: str) -> torch.Size:
    """Return the shape of a tensor that must exist."""
    if name not in theirs:
        raise ValueError(f"{source} has no tensor {name!r}; it has {listing(sorted(theirs))}")
    return theirs[name].shape


def _counts(name: str, tensor: Tensor, layout: Layout) -> bool:
    """Return whether a tensor is a parameter.

    The frozen zero token, recorded inputs and outputs (`__…`), and buffers that follow from the body (indices, masks,
    shortest paths) are not.
    """
    is_known = name == "tokenizer.zero_token" or name.startswith("__")
    return not is_known and tensor.is_floating_point() and tensor.shape != layout.graph.mask.shape


def _sizes(
    theirs: Mapping[str, Tensor], source: str, layout: Layout, config: PolicyConfig, num_heads: int
) -> PolicyConfig:
    """Return the configuration with the sizes of the tensors."""
    (embed_dim,) = _shape(theirs, f"{_their_tokenizer(layout.graph.root)}.bias", source)
    if config.architecture.encoder == "mlp":
        return replace(config, embed_dim=embed_dim, mlp_dim=_shape(theirs, "net.model.0.bias", source)[0])
    num_layers = 0
    while f"net.encoder.layers.{num_layers}.linear1.bias" in theirs:
        num_layers += 1
    return replace(
        config,
        embed_dim=embed_dim,
        num_layers=max(num_layers, 1),
        num_heads=num_heads,
        ff_dim=_shape(theirs, "net.encoder.layers.0.linear1.bias", source)[0],
        positional_encoding="net.embed_absolute_position.weight" in theirs,
    )


def _places(policy: Policy, theirs: Mapping[str, Tensor]) -> dict[str, Place]:
    """Return the place in the policy of each tensor that their file must have."""
    layout, ours = policy.layout, policy.state_dict()
    row_of_entry = np.cumsum(layout.obs_node_ids != UNUSED) - 1
    places: dict[str, Place] = {}
    for k, node in enumerate(layout.graph.nodes):
        rows = row_of_entry[layout.obs_ids(node)]
        places[f"{_their_tokenizer(node)}.weight"] = ours["tokenizer.weight"].T, (slice(None), rows)
        places[f"{_their_tokenizer(node)}.bias"] = ours["tokenizer.bias"], k
    if policy.config.architecture.encoder == "mlp":
        names = {f"net.model.{k}": f"encoder.layers.{k + 1}" for k in (0, 2, 4)}  # our layer 0 flattens
        names["detokenizer.detokenizers.global"] = "detokenizer.linear"
        return places | {f"{one}.{kind}": (ours[f"{two}.{kind}"], ...) for one, two in names.items() for kind in _KINDS}
    for layer in range(policy.config.num_layers):
        for their_name, our_name in _LAYER_NAMES.items():
            places[f"net.encoder.layers.{layer}.{their_name}"] = ours[f"encoder.layers.{layer}.{our_name}"], ...
    if policy.config.positional_encoding:
        places["net.embed_absolute_position.weight"] = ours["encoder.position"], ...
    if policy.config.architecture.hop_bias:
        places["net.sp_embeddings.weight"] = ours["encoder.hop_bias"][:, None], ...
    for node in layout.graph.nodes:
        actions = layout.action_ids(node)
        for kind in _KINDS:
            name = f"detokenizer.detokenizers.{THEIR_NODE_NAMES.get(node, node)}.{kind}"
            if actions or name in theirs:
                places[name] = ours[f"detokenizer.{kind}"], actions
    return places


def _their_tokenizer(node: str) -> str:
    return f"tokenizer.tokenizers.{THEIR_NODE_NAMES.get(node, node)}.0"
