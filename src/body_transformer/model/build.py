"""A config becomes modules: the choices that policy and critic share.

Each part gets its weights before the next is built, and the hop scalars, which one variant has, come last: for the
same seed, what two variants share is the same.
"""

from collections.abc import Sequence

from torch import nn

from ..body.graph import BodyGraph
from ..body.layout import Layout
from .baselines import FlatDetokenizer, MLPEncoder
from .config import PolicyConfig
from .detokenizer import Detokenizer, SharedDetokenizer
from .encoder import Encoder
from .tokenizer import SharedTokenizer, Tokenizer

WHOLLY_NORMAL = ("normal", "far")
AnyDetokenizer = Detokenizer | SharedDetokenizer | FlatDetokenizer


def build_tokenizer(layout: Layout, config: PolicyConfig) -> nn.Module:
    """[B, O] -> [B, N, E]"""
    kind = SharedTokenizer if config.shared_tokenizer else Tokenizer
    tokenizer = kind(layout, config.embed_dim)
    if config.init in WHOLLY_NORMAL:
        _draw_normal(tokenizer)
    return tokenizer


def build_encoder(graph: BodyGraph, config: PolicyConfig) -> nn.Module:
    """[B, N, E] -> [B, N, E]"""
    is_mlp = config.architecture.encoder == "mlp"
    encoder = MLPEncoder(graph.num_nodes, config.embed_dim, config.mlp_dim) if is_mlp else Encoder(graph, config)
    if config.init != "torch":
        _draw_normal(encoder)
    if config.init == "far":
        _draw_far(encoder)
    if isinstance(encoder, Encoder) and encoder.hop_bias is not None:
        nn.init.normal_(encoder.hop_bias, std=1.0 if config.init == "torch" else 0.02)
    return encoder


def build_detokenizer(node_ids: Sequence[int], graph: BodyGraph, config: PolicyConfig) -> AnyDetokenizer:
    """[B, N, E] -> [B, A]; `node_ids` says which node each output belongs to."""
    detokenizer: AnyDetokenizer
    if config.architecture.encoder == "mlp":
        detokenizer = FlatDetokenizer(graph.num_nodes, config.embed_dim, len(node_ids))
    else:
        kind = SharedDetokenizer if config.shared_tokenizer else Detokenizer
        detokenizer = kind(node_ids, config.embed_dim, graph.num_nodes)
    if config.init in WHOLLY_NORMAL:
        _draw_normal(detokenizer)
    return detokenizer


def _draw_far(encoder: nn.Module) -> None:
    """With N(0, 0.02) a masked layer passes on about a twentieth of what the neighbours hold: nothing after five."""
    for name, parameter in encoder.named_parameters():
        if name.endswith("out_proj.weight"):
            nn.init.xavier_normal_(parameter)


def _draw_normal(part: nn.Module) -> None:
    """N(0, 0.02) for every weight and 0 for every bias, but for LayerNorms and the attention's input projection."""
    for name, parameter in part.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif "norm" not in name and not name.endswith("in_proj.weight"):
            nn.init.normal_(parameter, std=0.02)
