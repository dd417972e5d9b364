"""What stands between the matrix products of a wide layer: residual sums with LayerNorm, and the way back.

Rows are the B * N tokens. Column sums (gradients of biases and of LayerNorm's parameters) come as partial sums, one
from each program, for the caller to add up. How the kernels are cut up was measured by benchmarks/wide_tuning.py.
"""

from dataclasses import dataclass
from typing import NamedTuple

import triton
from torch import Tensor

from . import kernels
from .storage import Norm


@dataclass(frozen=True)
class Tiles:
    """How a kernel goes over its rows."""

    entries: int
    """Of a tile."""
    warps: int
    programs: int = 0
    """At most so many share the tiles, each with its own column sums; the same on every card, for the same bits."""
    stages: int = 1
    """Tiles on their way to a program at a time, where rows need not be seen whole."""
    columns: int = 0
    """Of a tile; 0: all, where a row must be seen whole."""

    def rows(self, width: int) -> int:
        """Of a tile."""
        return max(1, self.entries // (self.columns or triton.next_power_of_2(width)))

    def partials(self, num_rows: int, width: int) -> int:
        """How many programs there are for so many rows, and so partial sums."""
        return int(min(self.programs, triton.cdiv(num_rows, self.rows(width))))


NORM = Tiles(entries=2048, warps=4)
NORM_BACKWARD = Tiles(entries=4096, warps=4, programs=264)
RELU_BACKWARD = Tiles(entries=4096, columns=512, warps=4, programs=256)


class Stream(NamedTuple):
    """The residual stream: `value`, and what rounding it to the operands' type cut off (None: nothing was)."""

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
    """`out` = LayerNorm(stream + update + bias), row by row; `out` may share its rest with `stream`.

    Args:
        update, stream, out: [M, E].
        bias, weight, shift: [E] float32.
        norm: written for the backward pass, unless None.
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
    """The gradient of a LayerNorm's input, from that of its output: `first` + `second`.

    Args:
        first, second, out: [M, E].
        sums: [P, 3, E] float32: partial column sums, the gradients of weight, shift, and of a bias added to the input.
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
    """Clears `gradient` [M, F] where `hidden` is not positive; `sums` [P, F] are partial column sums of the result."""
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
    """The tile of a kernel that sees rows whole."""
    width = like.shape[1]
    return {"E": width, "EP": triton.next_power_of_2(width), "R": rows}
