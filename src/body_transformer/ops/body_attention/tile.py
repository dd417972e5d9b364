"""Dense attention of whole bodies in one tile, which is efficient for a bias and for small or dense masks.

The backward pass needs only q, k and v; it recomputes the probabilities.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..assembler import sound_assembler, sound_options
from ..dispatch import num_blocks, padded, row_major, tf32_is_allowed
from . import tile_kernels

PROGRAMS_PER_SM = 4  # of the persistent backward pass that sums the bias gradient
PROGRAMS_WITHOUT_SM = 3  # in the interpreter


@dataclass(frozen=True)
class TileLaunch:
    """Launch settings for bodies of up to `nodes` nodes."""

    nodes: int
    pack: int
    """(Sample, head) pairs per program."""
    warps: int
    """At most `pack` if that is above one, so that each warp has its own pairs."""
    piece: int
    """Bytes of a node's row in one product; more would not fit into registers."""


SETTINGS = (TileLaunch(16, 1, 1, 128), TileLaunch(32, 1, 2, 256), TileLaunch(64, 1, 4, 128), TileLaunch(128, 1, 8, 128))
EXACT = ((32, "ieee"), (128, "tf32x3"))
"""Largest number of nodes -> exact arithmetic of float32 products. Above 32 nodes "ieee" needs too many registers, and
three TF32 products are as accurate."""


@sound_assembler(required=False)  # no version of ptxas is known to assemble these kernels wrongly
def forward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, out: Tensor, precision: str | None = None
) -> None:
    """Write softmax(q kᵀ / √D + bias) v, over the pairs where `mask` is True, into `out`.

    Args:
        q, k, v, out: [B, H, N, D] with any strides, N and D up to 128.
        mask: [N, N] bool with self-loops, or None.
        bias: [N, N] or None.
        precision: "ieee" or "tf32" for float32 products; None = the setting of `torch.backends.cuda.matmul`.
    """
    if q.numel() == 0:
        return
    launch = _Launch(q, precision)
    launch.kernel(
        tile_kernels.forward, launch.num_tiles, (q, k, v, row_major(mask), row_major(bias), out), (q, k, v, out)
    )


@sound_assembler(required=False)
def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    grad_out: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    precision: str | None = None,
) -> Tensor | None:
    """Write the gradients of q, k and v; return that of the bias, [N, N] float32, or None without a bias.

    Tensors are as in `forward`, each with its own strides.
    """
    num_nodes = q.shape[2]
    if q.numel() == 0:
        return None if bias is None else torch.zeros(num_nodes, num_nodes, device=q.device)
    launch = _Launch(q, precision)
    programs = launch.num_tiles if bias is None else min(launch.num_tiles, _persistent_programs(q.device))
    partials = None if bias is None else q.new_empty((programs, num_nodes, num_nodes), dtype=torch.float32)
    strided = (q, k, v, grad_out, dq, dk, dv)
    tensors = (q, k, v, row_major(mask), row_major(bias), grad_out, dq, dk, dv, partials)
    launch.kernel(tile_kernels.backward, programs, tensors, strided)
    return None if partials is None else partials.sum(0)  # in a fixed order, so that the bits are repeatable


class _Launch:
    """The launch of either kernel for one problem."""

    def __init__(self, q: Tensor, precision: str | None) -> None:
        batch, self.heads, self.num_nodes, self.head_dim = q.shape
        self.num_pairs = batch * self.heads
        self.setting = next(row for row in SETTINGS if self.num_nodes <= row.nodes)
        self.num_tiles = num_blocks(self.num_pairs, self.setting.pack)
        self.precision = _precision(q.dtype, self.num_nodes, precision)
        piece = self.setting.piece // q.element_size()
        self.width = min(piece, padded(self.head_dim, 16))  # the smallest width of the matrix units

    def kernel(
        self, kernel: Any, programs: int, tensors: tuple[Tensor | None, ...], strided: tuple[Tensor, ...]
    ) -> None:
        kernel[(programs,)](
            *tensors,
            *(tensor.stride() for tensor in strided),
            self.num_pairs,
            self.heads,
            self.head_dim**-0.5,
            N=self.num_nodes,
            D=self.head_dim,
            NP=padded(self.num_nodes, 16),
            DC=self.width,
            PACK=self.setting.pack,
            PRECISION=self.precision,
            WIDE=any(_span(tensor) >= 2**31 for tensor in strided),
            num_warps=self.setting.warps,
            num_stages=1,
            **sound_options(),
        )


def _precision(dtype: torch.dtype, num_nodes: int, asked: str | None) -> str:
    if dtype != torch.float32:
        return "ieee"
    asked = asked or ("tf32" if tf32_is_allowed() else "ieee")
    return next(exact for nodes, exact in EXACT if num_nodes <= nodes) if asked == "ieee" else asked


def _span(x: Tensor) -> int:
    """Return the number of elements between the first and the last of one body."""
    return (x.shape[2] - 1) * x.stride(2) + (x.shape[3] - 1) * x.stride(3)


def _persistent_programs(device: torch.device) -> int:
    if device.type != "cuda":
        return PROGRAMS_WITHOUT_SM
    return PROGRAMS_PER_SM * torch.cuda.get_device_properties(device).multi_processor_count
