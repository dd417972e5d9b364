"""How problems are cut for kernels."""


def num_blocks(total: int, block: int) -> int:
    """Blocks that hold `total` things."""
    return (total + block - 1) // block


def padded(size: int, least: int = 1) -> int:
    """The next power of two: kernels know no other sizes."""
    return max(least, 1 << (size - 1).bit_length())
