"""The encoder at widths where a layer does not fit on one multiprocessor: library products with fused kernels between.

A layer takes seven launches forward and eight backward; four more products compute the weight gradients of many
layers at once. Operands are bfloat16 or float32. In bfloat16 the residual stream is the sum of two tensors: its value,
and the rounding error of that value. Rounding the stream at every LayerNorm would double the error of the output. The
stream's gradient tolerates the rounding.

Except for `parameter_gradients`, no function returns a tensor that shares memory with another or with an argument.
"""

from .gradients import parameter_gradients
from .passes import backward, fake_backward, fake_forward, forward

__all__ = ["backward", "fake_backward", "fake_forward", "forward", "parameter_gradients"]
