"""How matrices lie in memory."""

from torch import Tensor


def row_major(matrix: Tensor | None) -> Tensor | None:
    """Without gaps, as the kernels read masks and biases."""
    return None if matrix is None else matrix.contiguous()
