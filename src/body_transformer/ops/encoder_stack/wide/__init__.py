"""The encoder at widths where a layer does not fit on one multiprocessor: library products, fused kernels between them.

Seven launches a layer forward, eight backward, and four products for the weight gradients of many layers at once.
Operands are bfloat16 or float32. In bfloat16 the residual stream is a sum of two tensors, the second what rounding cut
off the first: rounding it at every LayerNorm would double the error of the output. Its gradient bears the rounding.

No function returns a tensor that shares memory with another or with an argument, save `parameter_gradients`.
"""

from .gradients import parameter_gradients
from .passes import backward, check, fake_backward, fake_forward, forward

__all__ = ["backward", "check", "fake_backward", "fake_forward", "forward", "parameter_gradients"]
