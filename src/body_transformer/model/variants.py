"""The named architectures, as a table."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Variant:
    """What sets one architecture apart; the rest is in PolicyConfig."""

    encoder: Literal["transformer", "mlp"] = "transformer"
    """What turns tokens into tokens."""
    masked_layers: Literal["none", "all", "even"] = "none"
    """Encoder layers that attend along the mask only; the others attend everywhere."""
    mask: Literal["body", "random"] = "body"
    """The body's own mask, or a random one with as many ones."""
    hop_bias: bool = False
    """A learned scalar for each hop distance is added to the scores of every head and layer."""

    def is_masked(self, layer: int) -> bool:
        return self.masked_layers == "all" or (self.masked_layers == "even" and layer % 2 == 0)


VARIANTS = {
    "mlp": Variant(encoder="mlp"),
    "transformer": Variant(),
    "bot-hard": Variant(masked_layers="all"),
    "bot-mix": Variant(masked_layers="even"),
    "bot-soft": Variant(hop_bias=True),
    "bot-hard-random": Variant(masked_layers="all", mask="random"),
    "bot-mix-random": Variant(masked_layers="even", mask="random"),
}
