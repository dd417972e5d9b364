"""What these kernels take, and how they are launched."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
import triton

from ....assembler import sound_options
from ....sizes import num_blocks
from ..sizes import Sizes


def has_gluon() -> bool:
    """Triton calls it experimental: another version may be without it."""
    try:
        return find_spec("triton.experimental.gluon") is not None
    except ModuleNotFoundError:  # not even what it would be in
        return False


HAS_GLUON = has_gluon()


def takes(sizes: Sizes, precision: str, device: torch.device) -> bool:
    """Whether these kernels are for such an encoder.

    Timed were 16 nodes, a width of 64 and 128 hidden units; for the smaller ones it is assumed. Heads of 64 and 256
    hidden units, which need more registers than there are, are left to the general kernels.
    """
    return (
        precision == "bf16"
        and device.type == "cuda"
        and not triton.knobs.runtime.interpret
        and torch.cuda.get_device_capability(device)[0] == 9
        and HAS_GLUON
        and sizes.num_nodes <= 16
        and sizes.embed_dim in (32, 64)
        and sizes.embed_dim == 32 * sizes.num_heads
        and sizes.ff_dim in (64, 128)
    )


@dataclass(frozen=True)
class Launch:
    """How the forward and the backward kernel are launched."""

    samples: int
    """Samples a program works on, one or two a warp."""
    warps: int
    hidden: int = 64
    """Hidden units of the feed-forward part at a time."""
    registers: int | None = None


LAUNCH = {"inference": Launch(8, 4), "forward": Launch(8, 4), "backward": Launch(4, 4, 32, 168)}
"""The best of some 35 that were tried by hand on an H200 (2026-11-16), like those below. What sweeps them is
`benchmarks/encoder_tuning.py`."""


@dataclass(frozen=True)
class SumLaunch:
    """How the kernels that sum over all rows are launched."""

    rows: int
    """Rows at a time."""
    stages: int
    """Tiles of rows on their way and in use."""
    warps: int = 8
    registers: int | None = None


ATTENTION, FEED_FORWARD = SumLaunch(32, 3, 8, 128), SumLaunch(64, 4)
PROGRAMS = 132
"""How many sums there are at a time, of all layers together: one for each multiprocessor of an H200."""
MIN_ROWS = 512
"""Rows in a sum."""
MAX_SUMS = 2**26
"""Numbers in all sums together."""
MAX_NUMBERS = 2**30
"""In the rows of a sum: the kernels count them in 32 bits."""


def programs(kernel: str, batch: int) -> int:
    return num_blocks(batch, LAUNCH[kernel].samples)


def shares(sizes: Sizes, at_once: int, num_rows: int) -> int:
    """Into how many sums the rows go, `at_once` layers at a time: by size alone, so that sums are repeatable."""
    fit = MAX_SUMS // (sizes.num_layers * sizes.layer)
    wanted = min(PROGRAMS // at_once, num_rows // MIN_ROWS, fit)
    return max(1, wanted, num_blocks(num_rows * 3 * sizes.embed_dim, MAX_NUMBERS))


def constants(sizes: Sizes, kernel: str) -> dict[str, Any]:
    """The compile-time arguments of the forward and the backward kernel."""
    launch = LAUNCH[kernel]
    return {
        "N": sizes.num_nodes,
        "S": launch.samples,
        "E": sizes.embed_dim,
        "F": sizes.ff_dim,
        "FC": min(launch.hidden, sizes.ff_dim),
        "H": sizes.num_heads,
        "D": sizes.embed_dim // sizes.num_heads,
        "LAYER": sizes.layer,
        **_options(launch.warps, launch.registers),
    }


def attention_constants(sizes: Sizes) -> dict[str, Any]:
    return _sum_constants(sizes, ATTENTION, ATTENTION.warps)


def feed_forward_constants(sizes: Sizes) -> dict[str, Any]:
    warps = min(FEED_FORWARD.warps, sizes.ff_dim // 16)
    return {"F": sizes.ff_dim, **_sum_constants(sizes, FEED_FORWARD, warps)}


def _sum_constants(sizes: Sizes, launch: SumLaunch, warps: int) -> dict[str, Any]:
    tile = {"E": sizes.embed_dim, "ROWS": launch.rows, "STAGES": launch.stages, "LAYER": sizes.layer}
    return {**tile, **_options(warps, launch.registers)}


def _options(warps: int, registers: int | None) -> dict[str, Any]:
    return {"num_warps": warps, "maxnreg": registers, **sound_options()}
