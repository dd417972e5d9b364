"""Parameters and masks of the transformer encoder. `ops.encoder_stack.reference` defines the computation."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from ..body.graph import BodyGraph
from ..ops.body_attention import body_attention
from ..ops.body_attention.reference import body_attention as reference_attention
from ..ops.encoder_stack import (
    PARAMETERS,
    as_residual,
    automatic_backend,
    current_precision,
    encoder_stack,
    reference,
)
from .config import PolicyConfig
from .mask import MASKS

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}
MIN_SPARSE_NODES = 192
"""Smallest body, in nodes, for which masked attention on a CPU is worth the overhead of an operator."""


class Encoder(nn.Module):
    """[B, N, E] -> [B, N, E]; the variant defines which layers use the mask.

    On a GPU the layers of a post-norm encoder run as one operator, `ops.encoder_stack`, with the same parameters.
    """

    mask: Tensor
    hops: Tensor
    backend: str | None
    """Backend of the operator; None = its own choice, "layers" = always layer by layer."""
    position: Tensor | None
    """[N, E] positional encoding; the tokenizer adds it."""

    def __init__(self, graph: BodyGraph, config: PolicyConfig) -> None:
        super().__init__()
        variant = config.architecture
        self.backend = None
        self.num_heads = config.num_heads
        self.stackable = config.norm == "post" and config.activation == "relu" and not variant.hop_bias
        self.masked = [variant.is_masked(k) for k in range(config.num_layers)]
        mask = MASKS[variant.mask](graph, config.mask_seed)
        self.register_buffer("mask", torch.tensor(mask), persistent=False)  # True = may attend
        self.register_buffer("hops", torch.tensor(graph.hops), persistent=False)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.embed_dim) if config.norm == "pre" else nn.Identity()
        self.position = None
        if config.positional_encoding:
            self.position = nn.Parameter(torch.randn(graph.num_nodes, config.embed_dim))
        self.hop_bias = nn.Parameter(torch.zeros(graph.diameter + 1)) if variant.hop_bias else None  # see init.py

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, N, E] -> [B, N, E]; the tokens include the positional encoding."""
        out: Tensor | None = None
        if not torch.jit.is_scripting():  # type: ignore
            out = self._by_operator(tokens)
        return self._layer_by_layer(tokens) if out is None else out

    def _layer_by_layer(self, tokens: Tensor) -> Tensor:
        bias = None if self.hop_bias is None else self.hop_bias[self.hops]  # [N, N]
        for k, layer in enumerate(self.layers):
            tokens = layer(tokens, self.mask if self.masked[k] else None, bias)
        out: Tensor = self.norm(tokens)
        return out

    @torch.jit.unused
    def _by_operator(self, tokens: Tensor) -> Tensor | None:
        """Run all layers as one operator; return None if it does not support this encoder on this device."""
        wanted = tokens.is_cuda or self.backend is not None
        if not self.stackable or not wanted or self.backend == "layers" or _needs_plain_pytorch():
            return None
        parameters = self._parameters_as_built()
        if parameters is None:
            return None
        tokens = as_residual(tokens)  # under autocast the tokenizer's product is in half precision
        backend = self.backend
        if backend is None:
            precision = current_precision(tokens.device.type)
            backend = automatic_backend(tokens, self.num_heads, len(self.layers), precision)
            if backend == "reference":
                return None  # layer by layer, attention still has a fast backend
        return encoder_stack(tokens, parameters, self.mask, self.masked, self.num_heads, backend=backend)

    def _parameters_as_built(self) -> list[Tensor] | None:
        """Return the parameters of all layers in order; None if a part was wrapped, hooked or replaced."""
        parameters: list[Tensor] = []
        for layer in self.layers:
            if not (isinstance(layer, EncoderLayer) and layer.is_as_built()):
                return None
            parameters += layer.in_order()
        is_complete = len(parameters) == len(PARAMETERS) * len(self.layers)
        return parameters if is_complete and not _has_global_hooks() else None


class EncoderLayer(reference.LayerSpec, nn.Module):
    """One layer's parameters; the computation is the specification's."""

    pre_norm: bool  # with an annotation here, TorchScript does not read the specification's, which it cannot parse

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.attention: SelfAttention = SelfAttention(config.embed_dim, config.num_heads)
        self.norm1: nn.LayerNorm = nn.LayerNorm(config.embed_dim)
        self.linear1: nn.Linear = nn.Linear(config.embed_dim, config.ff_dim)
        self.linear2: nn.Linear = nn.Linear(config.ff_dim, config.embed_dim)
        self.norm2: nn.LayerNorm = nn.LayerNorm(config.embed_dim)
        self.activation = ACTIVATIONS[config.activation]

    def in_order(self) -> list[Tensor]:
        """Return the parameters in the order of `ops.encoder_stack.PARAMETERS`, without any that was removed."""
        own, attention = self._modules, self.attention._modules  # seven times as fast as attributes
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
        """Return whether the parameters alone determine the output: no part was replaced or hooked."""
        linear, norm = nn.Linear, nn.LayerNorm
        return (
            _is_unmodified(self, EncoderLayer, linear1=linear, linear2=linear, norm1=norm, norm2=norm)
            and _is_unmodified(self.attention, SelfAttention, in_proj=linear, out_proj=linear)
            and self.activation is F.relu
            and self.norm1.eps == self.norm2.eps == 1e-5  # LayerNorm's and `encoder_stack`'s default
        )


class SelfAttention(reference.AttentionSpec, nn.Module):
    """The attention's parameters; the computation is the specification's."""

    num_heads: int  # as in EncoderLayer

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attend = _attend
        self.in_proj: nn.Linear = nn.Linear(embed_dim, 3 * embed_dim)  # queries, keys, values
        self.out_proj: nn.Linear = nn.Linear(embed_dim, embed_dim)
        # as nn.MultiheadAttention is initialised
        nn.init.xavier_uniform_(self.in_proj.weight)
        nn.init.zeros_(self.in_proj.bias)
        nn.init.zeros_(self.out_proj.bias)


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
    """Compute `body_attention` by its operator where that is faster and allowed, else by its specification."""
    if torch.jit.is_scripting() or not _operator_is_faster(q, mask):  # type: ignore
        return reference_attention(q, k, v, mask, bias)
    return body_attention(q, k, v, mask, bias)


@torch.jit.unused
def _operator_is_faster(q: Tensor, mask: Tensor | None) -> bool:
    """Return whether the operator may run and is faster: always on a GPU, for large sparse bodies on a CPU."""
    return not _needs_plain_pytorch() and (q.is_cuda or (mask is not None and q.shape[2] >= MIN_SPARSE_NODES))


def _needs_plain_pytorch() -> bool:
    """Return whether only PyTorch's own operations may run, as in exported files and functional transforms."""
    tracing: bool = torch.jit.is_tracing()  # type: ignore
    if torch.compiler.is_compiling():
        return tracing or torch.compiler.is_exporting()
    return tracing or torch.onnx.is_in_onnx_export() or torch._C._are_functorch_transforms_active()


def _is_unmodified(part: nn.Module | None, kind: type[nn.Module], **parts: type[nn.Module]) -> bool:
    """Return whether a module and its named `parts` have exactly these types, no hooks and no own `forward`."""
    if type(part) is not kind:
        return False
    own = part.__dict__  # looked up once: this runs in every step
    if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
        return False
    inside = own["_modules"]
    return "forward" not in own and all(_is_unmodified(inside.get(name), parts[name]) for name in parts)


def _has_global_hooks() -> bool:
    """Return whether a hook is registered for all modules."""
    return bool(
        hooks._global_forward_hooks
        or hooks._global_forward_pre_hooks
        or hooks._global_backward_hooks
        or hooks._global_backward_pre_hooks
    )
