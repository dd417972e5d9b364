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
    tokenizer = (SharedTokenizer if config.shared_tokenizer else Tokenizer)(layout, config.embed_dim)
    return _initialised(tokenizer, config, in_trunk=False)


def build_trunk(graph: BodyGraph, config: PolicyConfig) -> nn.Module:
    """[B, N, E] -> [B, N, E]"""
    if config.architecture.trunk == "mlp":
        return _initialised(MLPTrunk(graph.num_nodes, config.embed_dim, config.mlp_dim), config, in_trunk=True)
    return _initialised(Encoder(graph, config), config, in_trunk=True)


def build_detokenizer(node_ids: Sequence[int], graph: BodyGraph, config: PolicyConfig) -> nn.Module:
    """[B, N, E] -> [B, A]; `node_ids` says which node each output belongs to."""
    if config.architecture.trunk == "mlp":
        return _initialised(FlatDetokenizer(graph.num_nodes, config.embed_dim, len(node_ids)), config, in_trunk=False)
    detokenizer = (SharedDetokenizer if config.shared_tokenizer else Detokenizer)(node_ids, config.embed_dim)
    return _initialised(detokenizer, config, in_trunk=False)


def _initialised(part: nn.Module, config: PolicyConfig, in_trunk: bool) -> nn.Module:
    """The part with its weights as `config.init` says; PyTorch's own are in place already.

    Each part is finished before the next is built, and the hop scalars, which one variant has, come last: what two
    variants share is the same for the same seed.
    """
    normal = config.init == "normal" or (config.init == "normal-trunk" and in_trunk)
    for name, parameter in part.named_parameters() if normal else ():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif "norm" not in name and not name.endswith("in_proj.weight"):
            nn.init.normal_(parameter, std=0.02)
    if isinstance(part, Encoder) and part.hop_bias is not None:
        nn.init.normal_(part.hop_bias, std=0.02 if normal else 1.0)
    return part
