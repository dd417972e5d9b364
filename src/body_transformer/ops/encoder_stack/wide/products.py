"""Matrix products of a wide layer by PyTorch's libraries, with sums in float32 and results in given tensors.

On a CPU the operands are stored in the same dtype as on a GPU. They are multiplied in float32, since many CPUs cannot
multiply bfloat16 matrices.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def linear(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> None:
    """Write `out` = x weightᵀ + bias."""
    if x.is_cuda:
        torch.addmm(bias, x, weight.t(), out=out)
    else:
        out.copy_(torch.addmm(bias.float(), x.float(), weight.float().t()))


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> None:
    """Write `out` = max(x weightᵀ + bias, 0)."""
    if x.is_cuda:
        torch._addmm_activation(bias, x, weight.t(), out=out)
    else:
        out.copy_(torch.addmm(bias.float(), x.float(), weight.float().t()).relu_())


def product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Write `out` = a b, for [M, K] and [K, N] or batches of them; `out` may be float32 where the operands are not."""
    multiply = torch.mm if a.dim() == 2 else torch.bmm
    if not a.is_cuda:
        out.copy_(multiply(a.float(), b.float()))
    elif out.dtype != a.dtype:
        multiply(a, b, out_dtype=out.dtype, out=out)
    else:
        multiply(a, b, out=out)


@contextmanager
def float32_products(precision: str) -> Iterator[None]:
    """Compute float32 products inside in "tf32" or "fp32", whatever the process-wide setting; "bf16" changes nothing.

    PyTorch has only a process-wide flag. If it differs, it is changed, and restored at the end. Float32 products that
    another thread launches meanwhile are affected.
    """
    allowed = torch.backends.cuda.matmul.fp32_precision == "tf32"
    wanted = precision == "tf32"
    if precision == "bf16" or allowed == wanted:
        yield
        return
    torch.backends.cuda.matmul.allow_tf32 = wanted  # unlike fp32_precision, this sets both of PyTorch's flags
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
