"""The named architectures, as a table."""

from dataclasses import dataclass
from typing import Literal

from ..errors import unknown


@dataclass(frozen=True)
class Variant:
    """The properties in which the architectures differ; PolicyConfig has the rest."""

    encoder: Literal["transformer", "mlp"] = "transformer"
    """Kind of the module between tokenizer and detokenizer."""
    masked_layers: Literal["none", "all", "even"] = "none"
    """Encoder layers that attend only where the mask is True; the others attend everywhere."""
    mask: Literal["body", "random"] = "body"
    """The body's own mask, or a random one with as many ones."""
    hop_bias: bool = False
    """Whether a learned scalar per hop distance is added to the attention scores of every head and layer."""

    def is_masked(self, layer: int) -> bool:
        return self.masked_layers == "all" or (self.masked_layers == "even" and layer % 2 == 0)


VariantName = Literal["mlp", "transformer", "bot-hard", "bot-mix", "bot-soft", "bot-hard-random", "bot-mix-random"]
VARIANTS: dict[VariantName, Variant] = {
    "mlp": Variant(encoder="mlp"),
    "transformer": Variant(),
    "bot-hard": Variant(masked_layers="all"),
    "bot-mix": Variant(masked_layers="even"),
    "bot-soft": Variant(hop_bias=True),
    "bot-hard-random": Variant(masked_layers="all", mask="random"),
    "bot-mix-random": Variant(masked_layers="even", mask="random"),
}


def variant_name(name: str) -> VariantName:
    """Return `name`; raise an error that lists the known variants if it is none of them."""
    for known in VARIANTS:
        if name == known:
            return known
    raise ValueError(unknown("variant", name, VARIANTS))
