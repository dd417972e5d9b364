"""Launch settings of the fused kernels."""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch.torch_version import TorchVersion

from ...assembler import sound_options
from ...dispatch import num_blocks, padded
from ..packing import OPERANDS, EncoderSizes

DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16}
SAVED = {"fp32": torch.float32, "tf32": torch.float16, "bf16": torch.bfloat16}
"""Precision -> dtype of saved normalised values. No value exceeds √E, so float16 suffices for TF32: both have ten
fraction bits."""


@dataclass(frozen=True)
class Launch:
    """Launch settings of a kernel."""

    rows: int = 64
    """Rows per program; one instruction of a Hopper matrix unit takes 64."""
    hidden: int = 32
    """Hidden units of the feed-forward part per step."""
    warps: int = 4
    registers: int | None = None
    """Limit on the registers of a thread, so that more programs share a multiprocessor."""
    stages: int = 1
    """Pipeline stages; with 2, the weights of the next head or of the next hidden units are prefetched."""


LAUNCH = {
    "inference": {"bf16": Launch(128, 128, 4, None, 2), "tf32": Launch(128, 128, 8, 128), "fp32": Launch()},
    "forward": {"bf16": Launch(128, 128, 4, None, 2), "tf32": Launch(128, 128, 8, 128), "fp32": Launch()},
    "backward": {"bf16": Launch(64, 64, 4, 128, 2), "tf32": Launch(64, 128), "fp32": Launch()},
}
"""Pass -> precision -> settings for widths up to 64, the fastest on an H200 (`benchmarks/encoder_tuning.py` of commit
fba00a1). The settings of fp32 are not tuned, neither here nor in the tables below."""

BROAD = {"bf16": Launch(stages=2), "tf32": Launch(), "fp32": Launch()}
"""Settings for larger widths and bodies, whose tiles fill registers and shared memory anyway; not tuned."""


@dataclass(frozen=True)
class SumLaunch:
    """Launch settings of the kernels that sum weight gradients over all rows."""

    rows: int
    """Rows per step."""
    warps: int
    hidden: int = 0
    """Hidden units of the feed-forward part per program."""
    stages: int = 3
    """Blocks of rows in the pipeline."""


SHARES = {"bf16": 24, "tf32": 64, "fp32": 64}
"""Number of partial sums over the rows."""
PRODUCT = {"bf16": SumLaunch(64, 4), "tf32": SumLaunch(32, 2), "fp32": SumLaunch(32, 2)}
FEED_FORWARD = {"bf16": SumLaunch(64, 8, 128), "tf32": SumLaunch(64, 8, 128), "fp32": SumLaunch(16, 4, 32)}
"""Settings for widths up to 64; this table and the two above are from the same tuning."""
BROAD_FEED_FORWARD = {"bf16": SumLaunch(32, 4, 64), "tf32": SumLaunch(32, 4, 32), "fp32": SumLaunch(16, 4, 32)}
"""Settings for larger widths; not tuned."""


FENCES_ITSELF = TorchVersion(triton.__version__) >= "3.7.1"
"""Whether Triton inserts the fences of `tiles.fence` itself, as it does since Triton's pull request 9610."""


def must_fence() -> bool:
    """Return whether kernels for the current device need explicit fences."""
    if FENCES_ITSELF or triton.knobs.runtime.interpret or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    return torch.cuda.get_device_capability() >= (9, 0)


@dataclass(frozen=True)
class FusedSizes(EncoderSizes):
    """The shapes of one encoder, with the launch settings of its kernels."""

    def launch(self, kernel: str, precision: str) -> Launch:
        small = self.embed_dim <= 64 and self.num_nodes <= 32
        return LAUNCH[kernel][precision] if small else BROAD[precision]

    def samples(self, kernel: str, precision: str) -> int:
        """Return the number of samples per program."""
        return max(self.launch(kernel, precision).rows // self.padded_nodes, 1)

    def programs(self, kernel: str, precision: str, batch: int) -> int:
        return num_blocks(batch, self.samples(kernel, precision))

    def product_constants(self, precision: str, outputs: int, inputs: int) -> dict[str, Any]:
        """Return the compile-time arguments of the weight gradient kernel."""
        launch = PRODUCT[precision]
        return {
            "A": outputs,
            "C": inputs,
            "BLOCK_A": min(64, padded(outputs, least=16)),
            "BLOCK_C": min(128, padded(inputs, least=16)),
            **self._sum_constants(launch, precision),
        }

    def feed_forward_constants(self, precision: str) -> dict[str, Any]:
        """Return the compile-time arguments of the feed-forward gradient kernel."""
        launch = (FEED_FORWARD if self.embed_dim <= 64 else BROAD_FEED_FORWARD)[precision]
        return {
            "E": self.embed_dim,
            "EP": padded(self.embed_dim, least=16),
            "F": self.ff_dim,
            "FC": min(launch.hidden, padded(self.ff_dim, least=16)),
            **self._sum_constants(launch, precision),
        }

    def _sum_constants(self, launch: SumLaunch, precision: str) -> dict[str, Any]:
        return {
            "ROWS": launch.rows,
            "LAYER_NUMEL": self.layer_numel,
            "STAGES": launch.stages,
            "FENCE": launch.stages > 1 and must_fence(),
            "PRECISION": precision,
            "num_warps": launch.warps,
            "num_stages": 1,
            **sound_options(),
        }

    def constants(self, kernel: str, precision: str) -> dict[str, Any]:
        """Return the compile-time arguments of the forward and the backward kernel."""
        launch = self.launch(kernel, precision)
        head_dim = self.embed_dim // self.num_heads
        return {
            "N": self.num_nodes,
            "NP": self.padded_nodes,
            "S": self.samples(kernel, precision),
            "E": self.embed_dim,
            "EP": padded(self.embed_dim, least=16),
            "F": self.ff_dim,
            "FC": min(launch.hidden, padded(self.ff_dim, least=16)),
            "H": self.num_heads,
            "D": head_dim,
            "DP": padded(head_dim, least=16),
            "LAYER_NUMEL": self.layer_numel,
            "STAGES": launch.stages,
            "FENCE": launch.stages > 1 and must_fence(),
            "DT": DTYPES[OPERANDS[precision]],
            "PRECISION": precision,
            "num_warps": launch.warps,
            "num_stages": 1,
            "maxnreg": launch.registers,
            **sound_options(),
        }
