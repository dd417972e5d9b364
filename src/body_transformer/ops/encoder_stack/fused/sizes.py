"""The fused kernels' shapes and launch settings."""

from dataclasses import dataclass
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from ...sizes import padded
from ..reference import PARAMETERS

DTYPES = {
    "fp32": (torch.float32, tl.float32),
    "tf32": (torch.float32, tl.float32),
    "bf16": (torch.bfloat16, tl.bfloat16),
}
"""Precision -> what operands and saved values are kept in."""


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched; measured on an H200 by `benchmarks/encoder_tuning.py`."""

    rows: int = 64
    """Rows a program works on: 64 is what one instruction of a Hopper matrix unit takes."""
    hidden: int = 32
    """Hidden units of the feed-forward part at a time."""
    warps: int = 4
    registers: int | None = None
    """Bound on a thread's registers, so that more programs share a multiprocessor."""
    stages: int = 1
    """2: the weights of the next head or the next hidden units are fetched meanwhile."""


LAUNCH = {
    "inference": {"bf16": Launch(128, 128, 8, 128, 2), "tf32": Launch(128, 128, 8, 128), "fp32": Launch()},
    "forward": {"bf16": Launch(64, 128, 4, 128, 2), "tf32": Launch(128, 128, 8, 128), "fp32": Launch()},
    "backward": {"bf16": Launch(64, 64, 4, 128, 2), "tf32": Launch(64, 128), "fp32": Launch()},
}
"""Pass -> precision -> settings, for widths up to 64."""

BROAD = {"bf16": Launch(stages=2), "tf32": Launch(), "fp32": Launch()}
"""For wider ones and larger bodies, whose tiles fill registers and shared memory anyway."""


@dataclass(frozen=True)
class ProductLaunch:
    """How the weight gradients' products are launched."""

    rows: int
    """Rows at a time."""
    shares: int
    """Into how many sums the rows go."""
    warps: int


PRODUCT = {"bf16": ProductLaunch(64, 12, 4), "tf32": ProductLaunch(32, 64, 2), "fp32": ProductLaunch(32, 64, 2)}


@dataclass(frozen=True)
class Sizes:
    """The shapes of one encoder."""

    num_layers: int
    num_nodes: int
    embed_dim: int
    ff_dim: int
    num_heads: int

    @classmethod
    def of(cls, x: Tensor, parameters: list[Tensor], num_heads: int) -> "Sizes":
        ff_dim = parameters[PARAMETERS.index("linear1.weight")].shape[0]
        return cls(len(parameters) // len(PARAMETERS), x.shape[1], x.shape[2], ff_dim, num_heads)

    @property
    def starts(self) -> dict[str, int]:
        """Where each parameter starts within its layer's part of the row; a LayerNorm's bias follows its weight."""
        embed, hidden = self.embed_dim, self.ff_dim
        lengths = {
            "in_weight": 3 * embed * embed,
            "in_bias": 3 * embed,
            "out_weight": embed * embed,
            "out_bias": embed,
            "norm1": 2 * embed,
            "weight1": embed * hidden,
            "bias1": hidden,
            "weight2": embed * hidden,
            "bias2": embed,
            "norm2": 2 * embed,
        }
        starts, start = {}, 0
        for name, length in lengths.items():
            starts[name] = start
            start += length
        return starts

    @property
    def layer(self) -> int:
        """Parameters of one layer."""
        return self.starts["norm2"] + 2 * self.embed_dim

    @property
    def scale(self) -> float:
        """Of the attention's scores."""
        return float((self.embed_dim // self.num_heads) ** -0.5)

    @property
    def padded_nodes(self) -> int:
        return padded(self.num_nodes, least=16)

    def launch(self, kernel: str, precision: str) -> Launch:
        small = self.embed_dim <= 64 and self.num_nodes <= 32
        return LAUNCH[kernel][precision] if small else BROAD[precision]

    def samples(self, kernel: str, precision: str) -> int:
        """Samples a program works on."""
        return max(self.launch(kernel, precision).rows // self.padded_nodes, 1)

    def programs(self, kernel: str, precision: str, batch: int) -> int:
        return -(-batch // self.samples(kernel, precision))

    def constants(self, kernel: str, precision: str) -> dict[str, Any]:
        """The compile-time arguments of the forward and the backward kernel."""
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
            "LAYER": self.layer,
            "STAGES": launch.stages,
            "DT": DTYPES[precision][1],
            "PRECISION": precision,
            "num_warps": launch.warps,
            "num_stages": 1,
            "maxnreg": launch.registers,
        }
