"""The transformer encoder over body parts."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..body.graph import BodyGraph
from ..ops.body_attention import body_attention
from ..ops.body_attention.reference import body_attention as reference_attention
from ..ops.encoder_stack import PARAMETERS, as_residual, automatic_backend, current_precision, encoder_stack
from .config import PolicyConfig
from .mask import MASKS
from .untouched import is_untouched, nobody_watches

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class Encoder(nn.Module):
    """[B, N, E] -> [B, N, E]; which layers see the mask is the variant's choice.

    On a GPU the layers of a post-norm encoder run as one operator, `ops.encoder_stack`, with the same parameters.
    """

    mask: Tensor
    hops: Tensor
    backend: str | None
    """The operator's backend; None = its own choice, "layers" = layer by layer, always."""

    def __init__(self, graph: BodyGraph, config: PolicyConfig) -> None:
        super().__init__()
        variant = config.architecture
        self.backend = None
        self.num_heads = config.num_heads
        self.stackable = config.norm == "post" and config.activation == "relu" and not variant.hop_bias
        mask = MASKS[variant.mask](graph, config.mask_seed)
        self.register_buffer("mask", torch.tensor(mask), persistent=False)  # True = may attend
        self.register_buffer("hops", torch.tensor(graph.hops), persistent=False)
        self.layers = nn.ModuleList(EncoderLayer(config, variant.is_masked(k)) for k in range(config.num_layers))
        self.norm = nn.LayerNorm(config.embed_dim) if config.norm == "pre" else nn.Identity()
        self.position = None
        if config.positional_encoding:
            self.position = nn.Parameter(torch.randn(graph.num_nodes, config.embed_dim))
        self.hop_bias = nn.Parameter(torch.zeros(graph.diameter + 1)) if variant.hop_bias else None  # drawn in build.py

    def forward(self, tokens: Tensor, placed: bool = False) -> Tensor:
        """[B, N, E] -> [B, N, E]; `placed`: the tokenizer has added the positions."""
        if self.position is not None and not placed:
            tokens = tokens + self.position
        out: Tensor | None = None
        if not torch.jit.is_scripting():  # type: ignore
            out = self._as_one(tokens)
        return self._layer_by_layer(tokens) if out is None else out

    def _layer_by_layer(self, tokens: Tensor) -> Tensor:
        bias = None if self.hop_bias is None else self.hop_bias[self.hops]  # [N, N]
        for layer in self.layers:
            tokens = layer(tokens, self.mask, bias)
        out: Tensor = self.norm(tokens)
        return out

    @torch.jit.unused
    def _as_one(self, tokens: Tensor) -> Tensor | None:
        """By the operator, if it is for this encoder and this device."""
        wanted = tokens.is_cuda or self.backend is not None
        if not self.stackable or not wanted or self.backend == "layers" or _needs_plain_pytorch():
            return None
        tokens = as_residual(tokens)  # a tokenizer that is one product gives half precision under autocast
        layers = [layer for layer in self.layers if isinstance(layer, EncoderLayer)]
        as_built = len(layers) == len(self.layers) and all(layer.is_as_built() for layer in layers)
        parameters = [parameter for layer in layers for parameter in layer.in_order()] if as_built else []
        if not as_built or not nobody_watches() or len(parameters) < len(PARAMETERS) * len(layers):
            return None  # somebody wrapped, hooked or exchanged a part: it must run
        backend = self.backend
        if backend is None:
            precision = current_precision(tokens.device.type)
            backend = automatic_backend(tokens, self.num_heads, len(layers), precision)
            if backend == "reference":
                return None  # layer by layer the attention at least is the fast one
        masked = [layer.masked for layer in layers]
        return encoder_stack(tokens, parameters, self.mask, masked, self.num_heads, backend=backend)


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward part, each with a residual sum and a LayerNorm."""

    def __init__(self, config: PolicyConfig, masked: bool) -> None:
        super().__init__()
        self.masked = masked
        self.pre_norm = config.norm == "pre"
        self.attention = SelfAttention(config.embed_dim, config.num_heads)
        self.norm1 = nn.LayerNorm(config.embed_dim)
        self.linear1 = nn.Linear(config.embed_dim, config.ff_dim)
        self.linear2 = nn.Linear(config.ff_dim, config.embed_dim)
        self.norm2 = nn.LayerNorm(config.embed_dim)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor, mask: Tensor, bias: Tensor | None) -> Tensor:
        """[B, N, E] -> [B, N, E]; the mask counts if this layer is a masked one."""
        layer_mask = mask if self.masked else None
        if self.pre_norm:
            x = x + self.attention(self.norm1(x), layer_mask, bias)
            x = x + self._feed_forward(self.norm2(x))
        else:
            x = self.norm1(x + self.attention(x, layer_mask, bias))
            x = self.norm2(x + self._feed_forward(x))
        return x

    def in_order(self) -> list[Tensor]:
        """The parameters as `ops.encoder_stack.PARAMETERS` names them, less any that was taken away."""
        own, attention = self._modules, self.attention._modules  # found in a seventh of the time that attributes take
        parts = (
            attention["in_proj"],
            attention["out_proj"],
            own["norm1"],
            own["linear1"],
            own["linear2"],
            own["norm2"],
        )
        both = (parameter for part in parts if part is not None for parameter in part._parameters.values())
        return [parameter for parameter in both if parameter is not None]

    def is_as_built(self) -> bool:
        """Nobody exchanged or hooked a part, and the LayerNorms are alike: the parameters say it all."""
        linear, norm = nn.Linear, nn.LayerNorm
        return (
            is_untouched(self, EncoderLayer, linear1=linear, linear2=linear, norm1=norm, norm2=norm)
            and is_untouched(self.attention, SelfAttention, in_proj=linear, out_proj=linear)
            and self.activation is F.relu
            and self.norm1.eps == self.norm2.eps == 1e-5  # LayerNorm's and `encoder_stack`'s own
        )

    def _feed_forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear2(self.activation(self.linear1(x)))
        return out


class SelfAttention(nn.Module):
    """Multi-head attention of the tokens among themselves."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj = nn.Linear(embed_dim, 3 * embed_dim)  # queries, keys, values
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        # as nn.MultiheadAttention starts
        nn.init.xavier_uniform_(self.in_proj.weight)
        nn.init.zeros_(self.in_proj.bias)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, x: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        """[B, N, E] -> [B, N, E]"""
        batch, num_nodes, embed_dim = x.shape
        qkv = self.in_proj(x).view(batch, num_nodes, 3, self.num_heads, embed_dim // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, N, D]
        if torch.jit.is_scripting() or not _pays_to_dispatch(x, mask):  # type: ignore
            heads = reference_attention(q, k, v, mask, bias)
        else:
            heads = body_attention(q, k, v, mask, bias)
        out: Tensor = self.out_proj(heads.transpose(1, 2).reshape(batch, num_nodes, embed_dim))
        return out


@torch.jit.unused
def _pays_to_dispatch(x: Tensor, mask: Tensor | None) -> bool:
    """On the CPU only a large sparse body is worth an operator."""
    return not _needs_plain_pytorch() and (x.is_cuda or (mask is not None and x.shape[1] >= 192))


def _needs_plain_pytorch() -> bool:
    """What is exported must be readable without us; functional transforms see through plain operations only."""
    tracing: bool = torch.jit.is_tracing()  # type: ignore
    if torch.compiler.is_compiling():
        return tracing or torch.compiler.is_exporting()
    return tracing or torch.onnx.is_in_onnx_export() or torch._C._are_functorch_transforms_active()
