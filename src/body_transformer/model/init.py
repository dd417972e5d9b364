"""Apply `PolicyConfig.init` to the parts of a network, which PyTorch has already initialised."""

from torch import nn


def init_tokenizer(part: nn.Module, scheme: str) -> None:
    """Initialise a tokenizer or a detokenizer in place; "normal-encoder" leaves them as they are."""
    if scheme in ("normal", "far"):
        _draw_normal(part)


def init_encoder(encoder: nn.Module, scheme: str) -> None:
    """Initialise an encoder in place.

    The hop scalars, which only one variant has, are drawn last. With one seed, all variants share the other weights.
    """
    if scheme != "torch":
        _draw_normal(encoder)
    if scheme == "far":
        for name, parameter in encoder.named_parameters():
            if name.endswith("out_proj.weight"):
                # With N(0, 0.02), a masked layer passes on only about a twentieth of its neighbours' signal. After five
                # layers nothing is left of it.
                nn.init.xavier_normal_(parameter)
    hop_bias = getattr(encoder, "hop_bias", None)
    if hop_bias is not None:
        nn.init.normal_(hop_bias, std=1.0 if scheme == "torch" else 0.02)


def _draw_normal(part: nn.Module) -> None:
    """Draw weights from N(0, 0.02) and set biases to 0, except LayerNorms and the attention's input projection."""
    for name, parameter in part.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif "norm" not in name and not name.endswith("in_proj.weight"):
            nn.init.normal_(parameter, std=0.02)
