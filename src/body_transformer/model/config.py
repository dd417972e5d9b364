"""PolicyConfig: together with a layout, it determines a policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..schema import check_fields, documented
from .variants import VARIANTS, Variant, VariantName, variant_name

Norm = Literal["post", "pre"]
Activation = Literal["relu", "gelu"]
Head = Literal["deterministic", "gaussian"]
Std = Literal["learned", "fixed"]
Squash = Literal["none", "tanh"]
Init = Literal["torch", "normal", "normal-encoder", "far"]
MAX_LAYERS = 1000
"""Largest number of layers; building more takes minutes."""


@documented
@dataclass(frozen=True)
class PolicyConfig:
    """A policy's architecture. The default sizes are those of the paper's reinforcement learning."""

    variant: VariantName = "bot-mix"
    """The named architecture."""
    embed_dim: int = 64
    """Width of a token."""
    num_layers: int = 10
    """Number of encoder layers."""
    num_heads: int = 2
    """Number of attention heads; it must divide embed_dim."""
    ff_dim: int = 128
    """Hidden width of the encoder's feed-forward parts."""
    mlp_dim: int = 150
    """Hidden width of the mlp variant, which has no transformer encoder."""
    positional_encoding: bool = True
    """Whether a learned vector is added to each node's token; the mlp variant needs none and has none."""
    shared_tokenizer: bool = False
    """Whether all nodes share one linear layer instead of one layer per node. Entries are padded to the largest number
    of any node. The same holds for the detokenizer, except the mlp's."""
    norm: Norm = "post"
    """LayerNorm after each residual sum ("post"), or before each sublayer and once more at the end ("pre")."""
    activation: Activation = "relu"
    """Activation of the feed-forward parts."""
    head: Head = "deterministic"
    """Deterministic action, or Gaussian distribution around it."""
    std: Std = "learned"
    """Standard deviation of the Gaussian: learned per action and independent of the state, or fixed."""
    init_std: float = 1.0
    """Standard deviation of the Gaussian at the start of training."""
    squash: Squash = "none"
    """Function applied to the mean action."""
    obs_clip: float | None = None
    """Bound on the normalised observation."""
    init: Init = "torch"
    """Initial weights. "torch": PyTorch's defaults. "normal": N(0, 0.02) for every linear layer and embedding, zero
    biases. "normal-encoder": the same for the encoder only. "far": as "normal", but with the attention's output
    projection as large as its input projection. It lets through information from nodes several hops away. The
    attention's input projection is always Xavier-uniform."""
    mask_seed: int = 0
    """Seed of the random mask, for the variants that have one."""

    def __post_init__(self) -> None:
        variant_name(self.variant)
        check_fields(self, non_negative=["mask_seed"])
        if self.num_layers > MAX_LAYERS:
            raise ValueError(f"num_layers must be at most {MAX_LAYERS}; got {self.num_layers}")
        if self.mask_seed >= 2**32:
            raise ValueError(f"mask_seed must be a whole number from 0 to 2**32 - 1; got {self.mask_seed}")
        if self.variant != "mlp" and self.embed_dim % self.num_heads:
            raise ValueError(
                f"num_heads must divide embed_dim; got num_heads={self.num_heads}, embed_dim={self.embed_dim}"
            )

    @property
    def architecture(self) -> Variant:
        """The row of `VARIANTS` that `variant` names."""
        return VARIANTS[self.variant]
