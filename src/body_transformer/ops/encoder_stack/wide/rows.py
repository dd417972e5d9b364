"""The steps between the matrix products of a wide layer: residual sums with LayerNorm, and their backward pass.

Rows are the B * N tokens. Column sums (gradients of biases and of LayerNorm's parameters) are returned as one partial
sum per program, which the caller adds up. The tile sizes are the fastest on an H200, as
measured by `benchmarks/wide_tuning.py` of commit fba00a1.
"""

from dataclasses import dataclass
from typing import NamedTuple

import triton
from torch import Tensor

from . import kernels
from .storage import Norm


@dataclass(frozen=True)
class Tiles:
    """Tile sizes and launch settings of a kernel over rows."""

    entries: int
    """Entries per tile."""
    warps: int
    programs: int = 0
    """Limit on the programs, each with its own column sums; the same on every GPU, for the same bits."""
    stages: int = 1
    """Tiles in the pipeline of a kernel that does not need whole rows."""
    columns: int = 0
    """Columns per tile; 0 = whole rows."""

    def rows(self, width: int) -> int:
        """Return the rows per tile."""
        return max(1, self.entries // (self.columns or triton.next_power_of_2(width)))

    def partials(self, num_rows: int, width: int) -> int:
        """Return the number of programs, and so of partial sums."""
        return int(min(self.programs, triton.cdiv(num_rows, self.rows(width))))


NORM = Tiles(entries=2048, warps=4)
NORM_BACKWARD = Tiles(entries=4096, warps=4, programs=264)
RELU_BACKWARD = Tiles(entries=4096, columns=512, warps=4, programs=256)


class Stream(NamedTuple):
    """The residual stream: `value`, and its rounding error `rest` in the operands' dtype (None = not rounded)."""

    value: Tensor
    rest: Tensor | None


def add_norm(
    update: Tensor,
    bias: Tensor,
    stream: Stream,
    weight: Tensor,
    shift: Tensor,
    out: Stream,
    norm: Norm | None,
    eps: float,
    tiles: Tiles = NORM,
) -> None:
    """Write `out` = LayerNorm(stream + update + bias), row by row; `out.rest` may be `stream.rest`.

    Args:
        update, stream, out: [M, E].
        bias, weight, shift: [E] float32.
        norm: written for the backward pass; None = no backward pass follows.
    """
    num_rows, width = update.shape
    rows = tiles.rows(width)
    normal, scale = norm or (None, None)
    kernels.add_norm[(triton.cdiv(num_rows, rows),)](
        *(update, bias, *stream, weight, shift),
        *(*out, normal, scale),
        *(num_rows, eps),
        **_sizes(update, rows),
        num_warps=tiles.warps,
    )


def norm_backward(
    first: Tensor,
    second: Tensor | None,
    norm: Norm,
    weight: Tensor,
    out: Tensor,
    sums: Tensor,
    tiles: Tiles = NORM_BACKWARD,
) -> None:
    """Write the gradient of a LayerNorm's input, from that of its output: `first` + `second`.

    Args:
        first, second, out: [M, E].
        sums: [P, 3, E] float32, partial column sums for the gradients of weight, of shift and of a bias in the input.
    """
    num_rows, width = out.shape
    kernels.norm_backward[(sums.shape[0],)](
        *(first, second, *norm, weight),
        *(out, sums),
        num_rows,
        **_sizes(out, tiles.rows(width)),
        num_warps=tiles.warps,
    )


def relu_backward(gradient: Tensor, hidden: Tensor, sums: Tensor, tiles: Tiles = RELU_BACKWARD) -> None:
    """Clear `gradient` [M, F] where `hidden` is not positive; write its partial column sums to `sums` [P, F]."""
    num_rows, width = gradient.shape
    kernels.relu_backward[(sums.shape[0], triton.cdiv(width, tiles.columns))](
        *(gradient, hidden),
        sums,
        num_rows,
        F=width,
        C=tiles.columns,
        R=tiles.rows(width),
        STAGES=tiles.stages,
        num_warps=tiles.warps,
    )


def _sizes(like: Tensor, rows: int) -> dict[str, int]:
    """Return the tile of a kernel over whole rows."""
    width = like.shape[1]
    return {"E": width, "EP": triton.next_power_of_2(width), "R": rows}
