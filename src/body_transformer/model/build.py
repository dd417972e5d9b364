"""A config becomes modules: the choices that policy and critic share."""

from collections.abc import Sequence

from torch import nn

from ..body.graph import BodyGraph
from ..body.layout import Layout
from .baselines import FlatDetokenizer, MLPTrunk
from .config import PolicyConfig
from .detokenizer import Detokenizer, SharedDetokenizer
from .encoder import Encoder
from .tokenizer import SharedTokenizer, Tokenizer


def build_tokenizer(layout: Layout, config: PolicyConfig) -> nn.Module:
    """[B, O] -> [B, N, E]"""
    return (SharedTokenizer if config.shared_tokenizer else Tokenizer)(layout, config.embed_dim)


def build_trunk(graph: BodyGraph, config: PolicyConfig) -> nn.Module:
    """[B, N, E] -> [B, N, E]"""
    if config.architecture.trunk == "mlp":
        return MLPTrunk(graph.num_nodes, config.embed_dim, config.mlp_dim)
    return Encoder(graph, config)


def build_detokenizer(node_ids: Sequence[int], graph: BodyGraph, config: PolicyConfig) -> nn.Module:
    """[B, N, E] -> [B, A]; `node_ids` says which node each output belongs to."""
    if config.architecture.trunk == "mlp":
        return FlatDetokenizer(graph.num_nodes, config.embed_dim, len(node_ids))
    return (SharedDetokenizer if config.shared_tokenizer else Detokenizer)(node_ids, config.embed_dim)


def init_weights(tokenizer: nn.Module, trunk: nn.Module, detokenizer: nn.Module, config: PolicyConfig) -> None:
    """Redraws the weights as `config.init` says; PyTorch's own are in place already."""
    if config.init == "torch":
        return
    for part in (trunk,) if config.init == "normal-trunk" else (tokenizer, trunk, detokenizer):
        for name, parameter in part.named_parameters():
            if name.endswith("bias") and name != "hop_bias":
                nn.init.zeros_(parameter)
            elif "norm" not in name and not name.endswith("in_proj.weight"):
                nn.init.normal_(parameter, std=0.02)
