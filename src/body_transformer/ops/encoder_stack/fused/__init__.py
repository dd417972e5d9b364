"""The whole encoder in a few launches, for encoders so narrow that a layer fits on one multiprocessor."""

from ..packing import parameter_gradients
from .passes import backward, fake_backward, fake_forward, forward

__all__ = ["backward", "fake_backward", "fake_forward", "forward", "parameter_gradients"]
