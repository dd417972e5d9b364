"""What these kernels take, and how they are launched."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
import triton

from ...assembler import sound_options
from ...dispatch import num_blocks
from ..packing import EncoderSizes


def has_gluon() -> bool:
    """Triton calls it experimental: another version may be without it."""
    try:
        return find_spec("triton.experimental.gluon") is not None
    except ModuleNotFoundError:  # not even what it would be in
        return False


HAS_GLUON = has_gluon()


def takes(sizes: EncoderSizes, precision: str, device: torch.device) -> bool:
    """Whether these kernels are for such an encoder.

    The paper's sizes, of which 16 nodes were timed; for smaller bodies it is assumed. Others, which would need a split
    among warps of their own or more registers than there are, are left to the general kernels.
    """
    return (
        precision == "bf16"
        and device.type == "cuda"
        and not triton.knobs.runtime.interpret
        and torch.cuda.get_device_capability(device)[0] == 9
        and HAS_GLUON
        and sizes.num_nodes <= 16
        and (sizes.embed_dim, sizes.num_heads, sizes.ff_dim) == (64, 2, 128)
    )


@dataclass(frozen=True)
class HopperLaunch:
    """How the forward and the backward kernel are launched."""

    samples: int
    """Samples a program works on, one or two a warp."""
    warps: int
    hidden: int = 64
    """Hidden units of the feed-forward part at a time."""
    registers: int | None = None


LAUNCH = {"inference": HopperLaunch(8, 4), "forward": HopperLaunch(8, 4), "backward": HopperLaunch(4, 4, 32, 168)}
"""The best of what `benchmarks/encoder_tuning.py` tries, on an H200 (2026-11-18); so are SUMS and PROGRAMS."""


@dataclass(frozen=True)
class HopperSumLaunch:
    """How the kernel that sums over all rows is launched."""

    attention: tuple[int, int]
    """Rows at a time, and how many times that many are on their way or in use."""
    feed_forward: tuple[int, int]
    """The same in programs for the feed-forward part."""
    split: float
    """The part of all programs that is for attention."""
    warps: int = 8


SUMS = HopperSumLaunch((64, 3), (64, 4), 0.46)
"""Attention's sums read three times as much as the others, which multiply twice as much; timed."""
PROGRAMS = 132
"""How many sums there are at a time, of all layers together: one for each multiprocessor of an H200."""
MIN_ROWS = 512
"""Rows in a sum."""
MAX_SUMS = 2**26
"""Numbers in all sums together."""
MAX_NUMBERS = 2**30
"""In the rows of a sum: the kernel counts them in 32 bits."""
TOTAL: dict[str, Any] = {"BLOCK": 512, "ROWS": 512, "COLUMNS": 8, "num_warps": 4, "maxnreg": None}
"""How the sums of all shares are added up."""


def programs(kernel: str, batch: int) -> int:
    return num_blocks(batch, LAUNCH[kernel].samples)


def shares(sizes: EncoderSizes, at_once: int, num_rows: int) -> tuple[int, int]:
    """Into how many sums the rows go, `at_once` layers at a time, for attention and for the feed-forward part: by size
    alone, so that sums are repeatable."""
    attention = round(SUMS.split * (PROGRAMS // at_once))
    most = min(num_rows // MIN_ROWS, MAX_SUMS // (sizes.num_layers * sizes.layer))
    least = num_blocks(num_rows * 3 * sizes.embed_dim, MAX_NUMBERS)
    first, second = (max(1, least, min(wanted, most)) for wanted in (attention, PROGRAMS // at_once - attention))
    return first, second


def total_programs(sizes: EncoderSizes) -> int:
    """That add up the sums: some for the last LayerNorm's, the others for all else."""
    columns, block = int(TOTAL["COLUMNS"]), int(TOTAL["BLOCK"])
    return (sizes.layer - sizes.starts["norm2"]) // columns + num_blocks(sizes.num_layers * sizes.layer, block)


def constants(sizes: EncoderSizes, kernel: str) -> dict[str, Any]:
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


def sum_constants(sizes: EncoderSizes) -> dict[str, Any]:
    """Those of the kernel that sums over all rows."""
    return {
        "E": sizes.embed_dim,
        "F": sizes.ff_dim,
        "LAYER": sizes.layer,
        "ATTENTION_ROWS": SUMS.attention[0],
        "ATTENTION_STAGES": SUMS.attention[1],
        "FF_ROWS": SUMS.feed_forward[0],
        "FF_STAGES": SUMS.feed_forward[1],
        **_options(SUMS.warps, None),
    }


def _options(warps: int, registers: int | None) -> dict[str, Any]:
    return {"num_warps": warps, "maxnreg": registers, **sound_options()}
