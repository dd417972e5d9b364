"""How exactly PyTorch is asked to multiply float32 matrices."""

import torch


def tf32_is_allowed() -> bool:
    """Whether float32 products on CUDA may be computed in TF32, by whichever of PyTorch's two settings it was set.

    What is set by the older one, `allow_tf32`, the newer one shows too; the older refuses to be read once the newer was
    set.
    """
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


# What `torch.compiler.assume_constant_result` does, without its import of the whole compiler: `torch.compile` cannot
# look inside, and compiles anew where the setting changes.
tf32_is_allowed._dynamo_marked_constant = True  # type: ignore[attr-defined]
