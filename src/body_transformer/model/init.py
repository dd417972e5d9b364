"""Initial weights: what `PolicyConfig.init` does to the parts of a network, which PyTorch has already initialised."""

from torch import nn

NORMAL_EVERYWHERE = ("normal", "far")
"""Schemes that draw the tokenizer and the detokenizer from N(0, 0.02), too; "normal-encoder" leaves them alone."""


def init_tokenizer(part: nn.Module, scheme: str) -> None:
    """Initialise a tokenizer or a detokenizer in place."""
    if scheme in NORMAL_EVERYWHERE:
        _draw_normal(part)


def init_encoder(encoder: nn.Module, scheme: str) -> None:
    """Initialise an encoder in place.

    The hop scalars, which only one variant has, are drawn last: with one seed, all variants share their other weights.
    """
    if scheme != "torch":
        _draw_normal(encoder)
    if scheme == "far":
        _enlarge_output_projections(encoder)
    hop_bias = getattr(encoder, "hop_bias", None)
    if hop_bias is not None:
        nn.init.normal_(hop_bias, std=1.0 if scheme == "torch" else 0.02)


def _enlarge_output_projections(encoder: nn.Module) -> None:
    """Draw every attention's output projection Xavier-normal.

    With N(0, 0.02), a masked layer passes on about a twentieth of its neighbours' signal: nothing after five layers.
    """
    for name, parameter in encoder.named_parameters():
        if name.endswith("out_proj.weight"):
            nn.init.xavier_normal_(parameter)


def _draw_normal(part: nn.Module) -> None:
    """Draw weights from N(0, 0.02) and set biases to 0, except LayerNorms and the attention's input projection."""
    for name, parameter in part.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif "norm" not in name and not name.endswith("in_proj.weight"):
            nn.init.normal_(parameter, std=0.02)
