"""The whole transformer encoder as one operator."""

from .choose import BACKENDS, PRECISIONS, automatic_backend, choose_backend, current_precision
from .op import encoder_stack
from .reference import PARAMETERS

__all__ = [
    "BACKENDS",
    "PARAMETERS",
    "PRECISIONS",
    "automatic_backend",
    "choose_backend",
    "current_precision",
    "encoder_stack",
]
