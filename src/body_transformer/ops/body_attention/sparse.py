"""Attention over neighbour lists with Triton kernels: time and memory are linear in the number of ones of the mask.

The backward pass recomputes the probabilities from q, k and v, so the forward pass saves nothing else. The tensor
`between` passes probabilities and score gradients from the first backward kernel to the second.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..dispatch import num_blocks, padded, row_major
from . import sparse_heavy_kernels, sparse_kernels
from .mask_facts import facts_of
from .neighbour_lists import Side

HEAVY_CHUNK = 64
HEAVY_WARPS = 4
MIN_PROGRAMS = 4096
"""Number of programs below which some multiprocessors would be idle."""


@dataclass(frozen=True)
class SparseLaunch:
    """Launch settings of a kernel over light nodes, for rows of up to `row_bytes`."""

    row_bytes: int
    block: int
    """Nodes per program."""
    warps: int
    samples: int
    """Largest number of samples per program."""
    registers: int | None = None
    """Limit on the registers of a thread, so that more programs share a multiprocessor."""


SETTINGS = {
    "forward": (
        SparseLaunch(64, 16, 2, 8),
        SparseLaunch(128, 16, 4, 4),
        SparseLaunch(256, 4, 2, 4),
        SparseLaunch(512, 2, 2, 4),
    ),
    "rows": (
        SparseLaunch(64, 8, 1, 8),
        SparseLaunch(128, 4, 1, 4),
        SparseLaunch(256, 2, 1, 4),
        SparseLaunch(512, 1, 1, 4),
    ),
    "columns": (
        SparseLaunch(64, 16, 2, 8),
        SparseLaunch(128, 8, 2, 8),
        SparseLaunch(256, 4, 2, 4, 64),
        SparseLaunch(512, 2, 2, 4, 64),
    ),
}
"""The fastest settings on an H200 for rows of 64, 128 and 256 bytes and up to five neighbours, as measured by
`benchmarks/attention_tuning.py` of commit fba00a1. The settings for 512 bytes are extrapolated. Each thread holds 16
bytes of a row."""
MOST_BOUNDED = 5
"""Largest number of slots with a register limit. With more slots, the limit would make registers spill."""


def forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """Write the attention of q, k, v [B, H, N, D], any strides, into `out`; bias [N, N] or None."""
    if q.numel() == 0:
        return
    lists = facts_of(mask).lists(mask)
    _run(
        "forward",
        lists.rows,
        tensors=(q, k, v, row_major(bias), out),
        strided=(q, k, v, out),
        entries=(lists.rows.start, lists.rows.other),
        sizes=(lists.num_nodes,),
    )


def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor,
    bias: Tensor | None,
    grad_out: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
) -> Tensor | None:
    """Write the gradients of q, k and v; return that of the bias, [N, N] float32, or None without a bias."""
    lists = facts_of(mask).lists(mask)
    between = q.new_empty((q.shape[0] * q.shape[1], lists.num_ones), dtype=torch.int64)
    if q.numel() > 0:
        _run(
            "rows",
            lists.rows,
            tensors=(q, k, v, row_major(bias), grad_out, dq, between),
            strided=(q, k, v, grad_out, dq),
            entries=(lists.rows.start, lists.rows.other),
            sizes=(lists.num_nodes, lists.num_ones),
        )
        _run(
            "columns",
            lists.columns,
            tensors=(q, grad_out, between, dk, dv),
            strided=(q, grad_out, dk, dv),
            entries=(lists.columns.start, lists.columns.other, lists.columns.position),
            sizes=(lists.num_ones,),
        )
    if bias is None:
        return None
    grad_bias = torch.zeros(lists.num_nodes**2, device=q.device)
    ds = between.view(torch.float32).view(*between.shape, 2)[..., 1]
    return grad_bias.index_copy_(0, lists.flat, ds.sum(0)).view(lists.num_nodes, lists.num_nodes)


KERNELS = {
    "forward": (sparse_kernels.forward_light, sparse_heavy_kernels.forward_heavy),
    "rows": (sparse_kernels.backward_rows_light, sparse_heavy_kernels.backward_rows_heavy),
    "columns": (sparse_kernels.backward_columns_light, sparse_heavy_kernels.backward_columns_heavy),
}


def _run(
    name: str,
    side: Side,
    tensors: tuple[Tensor | None, ...],
    strided: tuple[Tensor, ...],
    entries: tuple[Tensor, ...],
    sizes: tuple[int, ...],
) -> None:
    """Launch the kernel for light nodes and the one for heavy nodes, unless there are none."""
    light, heavy = KERNELS[name]
    batch, heads, _, head_dim = strided[0].shape
    strides = tuple(tensor.stride() for tensor in strided)
    scalars = (*sizes, heads, head_dim**-0.5)
    widths = {"D": head_dim, "DP": padded(head_dim, least=8)}
    num_light, num_heavy = len(side.light), len(side.heavy)
    if num_light > 0:
        setting = _setting(name, strided[0])
        blocks = heads * num_blocks(num_light, setting.block)
        groups = num_blocks(batch, max(1, min(setting.samples, batch * blocks // MIN_PROGRAMS)))
        bound = {"maxnreg": setting.registers} if setting.registers and side.slots <= MOST_BOUNDED else {}
        light[(blocks * groups,)](
            *tensors, *strides, side.light, *entries, num_light, batch, num_blocks(batch, groups), *scalars,
            SLOTS=side.slots, BLOCK=setting.block, num_warps=setting.warps, num_stages=1, **bound, **widths,
        )  # fmt: skip
    if num_heavy > 0:
        heavy[(batch * heads * num_heavy,)](
            *tensors, *strides, side.heavy, *entries, num_heavy, *scalars,
            CHUNK=HEAVY_CHUNK, num_warps=HEAVY_WARPS, num_stages=1, **widths,
        )  # fmt: skip


def _setting(name: str, x: Tensor) -> SparseLaunch:
    row_bytes = x.shape[-1] * x.element_size()
    return next(setting for setting in SETTINGS[name] if row_bytes <= setting.row_bytes)
