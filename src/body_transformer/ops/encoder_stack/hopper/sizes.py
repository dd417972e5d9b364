"""The sizes that these kernels support, and their launch settings."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
import triton

from ...assembler import sound_options
from ...dispatch import num_blocks
from ..packing import EncoderSizes


def has_gluon() -> bool:
    """Return whether Triton has Gluon, which is experimental and may be missing in another version."""
    try:
        return find_spec("triton.experimental.gluon") is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


HAS_GLUON = has_gluon()


def supports(sizes: EncoderSizes, precision: str, device: torch.device) -> bool:
    """Return whether these kernels support an encoder of these sizes.

    They support the paper's sizes with up to 16 nodes. Only 16 nodes were timed; smaller bodies are assumed to benefit
    too. Other sizes use the general kernels, since they would need another split among warps or too many registers.
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
    """Launch settings of the forward and the backward kernel."""

    samples: int
    """Samples per program, one or two per warp."""
    warps: int
    hidden: int = 64
    """Hidden units of the feed-forward part per step."""
    registers: int | None = None


LAUNCH = {"inference": HopperLaunch(8, 4), "forward": HopperLaunch(8, 4), "backward": HopperLaunch(4, 4, 32, 168)}
"""The fastest settings on an H200 (2026-11-18, `benchmarks/encoder_tuning.py` of commit fba00a1), as are SUMS and
PROGRAMS."""


@dataclass(frozen=True)
class HopperSumLaunch:
    """Launch settings of the kernel that sums over all rows."""

    attention: tuple[int, int]
    """Rows per tile, and the number of tiles that are in flight or in use."""
    feed_forward: tuple[int, int]
    """The same two numbers for the feed-forward part."""
    split: float
    """Share of all programs that work on attention."""
    warps: int = 8


SUMS = HopperSumLaunch((64, 3), (64, 4), 0.46)
"""The fastest settings. Attention's sums read three times as much; the feed-forward part's multiply twice as much."""
PROGRAMS = 132
"""Number of simultaneous sums over all layers, one per multiprocessor of an H200."""
MIN_ROWS = 512
"""Minimum number of rows per sum."""
MAX_SUMS = 2**26
"""Limit on the total number of elements of all sums."""
MAX_NUMBERS = 2**30
"""Limit on the number of elements that one sum reads, which the kernel counts in 32 bits."""
TOTAL: dict[str, Any] = {"BLOCK": 512, "ROWS": 512, "COLUMNS": 8, "num_warps": 4, "maxnreg": None}
"""Launch settings of the kernel that adds up the sums of all shares."""


def programs(kernel: str, batch: int) -> int:
    return num_blocks(batch, LAUNCH[kernel].samples)


def shares(sizes: EncoderSizes, at_once: int, num_rows: int) -> tuple[int, int]:
    """Return the number of sums for attention and for the feed-forward part, with `at_once` layers per launch.

    It depends on the sizes alone, so that sums are repeatable.
    """
    attention = round(SUMS.split * (PROGRAMS // at_once))
    most = min(num_rows // MIN_ROWS, MAX_SUMS // (sizes.num_layers * sizes.layer_numel))
    least = num_blocks(num_rows * 3 * sizes.embed_dim, MAX_NUMBERS)
    first, second = (max(1, least, min(wanted, most)) for wanted in (attention, PROGRAMS // at_once - attention))
    return first, second


def total_programs(sizes: EncoderSizes) -> int:
    """Return the number of programs that add up the sums: those for the last LayerNorm and those for the rest."""
    columns, block = int(TOTAL["COLUMNS"]), int(TOTAL["BLOCK"])
    norm_columns = sizes.layer_numel - sizes.starts["norm2"]
    return norm_columns // columns + num_blocks(sizes.num_layers * sizes.layer_numel, block)


def constants(sizes: EncoderSizes, kernel: str) -> dict[str, Any]:
    """Return the compile-time arguments of the forward and the backward kernel."""
    launch = LAUNCH[kernel]
    return {
        "N": sizes.num_nodes,
        "S": launch.samples,
        "E": sizes.embed_dim,
        "F": sizes.ff_dim,
        "FC": min(launch.hidden, sizes.ff_dim),
        "H": sizes.num_heads,
        "D": sizes.embed_dim // sizes.num_heads,
        "LAYER_NUMEL": sizes.layer_numel,
        **_options(launch.warps, launch.registers),
    }


def sum_constants(sizes: EncoderSizes) -> dict[str, Any]:
    """Return the compile-time arguments of the kernel that sums over all rows."""
    return {
        "E": sizes.embed_dim,
        "F": sizes.ff_dim,
        "LAYER_NUMEL": sizes.layer_numel,
        "ATTENTION_ROWS": SUMS.attention[0],
        "ATTENTION_STAGES": SUMS.attention[1],
        "FF_ROWS": SUMS.feed_forward[0],
        "FF_STAGES": SUMS.feed_forward[1],
        **_options(SUMS.warps, None),
    }


def _options(warps: int, registers: int | None) -> dict[str, Any]:
    return {"num_warps": warps, "maxnreg": registers, **sound_options()}
