"""The choice of the fastest backend, as one table.

The table follows from times of forward and backward passes with trees and with random masks of several densities.
`benchmarks/attention_crossover.py` measured them on a CPU and on an H200 (`benchmarks/results/crossovers_h200.md`).

The table departs from them in two cases. One is masks with self-loops only, which no body has. The other is dense
float32 masks with 17 to 32 nodes. There the reference was an eighth faster in replays of a CUDA graph, but without a
graph it needs six kernel launches.
"""

from dataclasses import dataclass
from math import inf

import torch

from ..dispatch import HAS_TRITON, padded
from .backends import ALL_FLOATS, BACKENDS, HALVES_AND_SINGLE

HALVES = (torch.float16, torch.bfloat16)
SINGLE = (torch.float32,)


@dataclass(frozen=True)
class AttentionChoice:
    """A row of the table. The first row that applies, and whose backend supports the problem, is used."""

    backend: str
    device: str
    dtypes: tuple[torch.dtype, ...] = ALL_FLOATS
    nodes: tuple[float, float] = (1, inf)
    """Range, both ends included."""
    density: tuple[float, float] = (0, 1)
    """Range of the density, both ends included. The density is the number of ones divided by N², or by the square of
    the padded N if "tile" supports it."""
    bias: bool | None = None
    """Whether there is a bias; None = either."""

    def holds(self, device: str, dtype: torch.dtype, num_nodes: int, density: float, bias: bool) -> bool:
        return (
            self.device == device
            and dtype in self.dtypes
            and self.nodes[0] <= num_nodes <= self.nodes[1]
            and self.density[0] <= density <= self.density[1]
            and self.bias in (None, bias)
        )


CHOICES = (
    AttentionChoice("tile", "cuda", HALVES, nodes=(1, 64)),
    AttentionChoice("triton", "cuda", HALVES, nodes=(65, 128), density=(0, 0.03)),
    AttentionChoice("triton", "cuda", HALVES, nodes=(65, 128), density=(0, 0.045), bias=True),
    AttentionChoice("triton", "cuda", SINGLE, nodes=(1, 32), density=(0, 0.3)),
    AttentionChoice("triton", "cuda", SINGLE, nodes=(33, 64), density=(0, 0.06)),
    AttentionChoice("triton", "cuda", SINGLE, nodes=(65, 128), density=(0, 0.09)),
    AttentionChoice("tile", "cuda", HALVES_AND_SINGLE, nodes=(1, 128)),
    AttentionChoice("triton", "cuda", HALVES_AND_SINGLE, nodes=(129, 512), density=(0, 0.07)),
    AttentionChoice("triton", "cuda", HALVES_AND_SINGLE, nodes=(513, inf), density=(0, 0.12)),
    AttentionChoice("neighbours", "cuda", nodes=(512, inf), density=(0, 0.008)),
    AttentionChoice("reference", "cuda"),
    # measured on batches; a single sample crosses over at about 300 nodes
    AttentionChoice("neighbours", "cpu", nodes=(192, inf), density=(0, 0.02)),
    AttentionChoice("reference", "cpu"),
)
OTHER_DEVICES = "reference"


def choose_backend(
    device: str,
    dtype: torch.dtype,
    num_nodes: int,
    head_dim: int,
    density: float = 1.0,
    bias: bool = False,
    num_rows: int = 1,
) -> str:
    """Return the default backend of `body_attention`; without a mask the density is 1, and num_rows is B·H·N."""
    if density < 1 and num_nodes <= (BACKENDS["tile"].max_nodes or 0):
        density *= (num_nodes / padded(num_nodes, least=16)) ** 2  # a padded tile costs as much as a full one
    for choice in CHOICES:
        backend = BACKENDS[choice.backend]
        can_run = HAS_TRITON or not backend.needs_triton
        fits = choice.holds(device, dtype, num_nodes, density, bias)
        if can_run and fits and not backend.refusal(dtype, num_nodes, head_dim, num_rows):
            return choice.backend
    return OTHER_DEVICES
