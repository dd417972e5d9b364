"""The whole transformer encoder as one operator."""

from .choose import BACKENDS, PRECISIONS, as_residual, automatic_backend, choose_backend, current_precision
from .op import encoder_stack
from .reference import PARAMETERS

__all__ = [
    "BACKENDS",
    "PARAMETERS",
    "PRECISIONS",
    "as_residual",
    "automatic_backend",
    "choose_backend",
    "current_precision",
    "encoder_stack",
]
