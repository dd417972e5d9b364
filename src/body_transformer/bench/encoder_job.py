"""What `bot bench encoder` is asked to time, and on which encoders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..body.layout import Layout
from ..experiment import load_experiment
from ..model.config import PolicyConfig
from ..model.encoder import Encoder
from .arithmetic import ON_DEVICE
from .floors import attending_pairs, encoder_flops, matmul_rate
from .stacks import Weights, take_apart
from .timing import ONCE, QUICK, Effort, num_sets


@dataclass(frozen=True)
class Sizes:
    """Batches, which a CPU and a quick run have smaller."""

    train: int
    """Observations in a PPO minibatch."""
    rollout: int
    """Observations in a step of all environments."""
    imitation: int
    """Samples in an imitation minibatch."""
    errors: int
    """Samples whose errors are taken; not a multiple of any block."""
    max_layers: int = 99


SIZES = {"cuda": Sizes(8192, 2048, 256, 1003), "cpu": Sizes(256, 64, 4, 101)}
QUICK_SIZES = Sizes(4, 2, 1, 3, max_layers=2)


@dataclass(frozen=True)
class EncoderJob:
    """What to time."""

    device: str
    rows: Sequence[str]
    """Keys of encoder.PARTS."""
    peers: bool
    compile_peers: bool
    quick: bool = False
    compile_only: bool = False
    """Run everyone once and time nothing."""

    @property
    def effort(self) -> Effort:
        return ONCE if self.compile_only else QUICK if self.quick else Effort()

    def num_sets(self, set_bytes: int) -> int:
        return 1 if self.quick or self.compile_only else num_sets(set_bytes, self.device)

    @property
    def sizes(self) -> Sizes:
        return QUICK_SIZES if self.quick else SIZES[self.device]

    @property
    def precisions(self) -> Sequence[str]:
        return ON_DEVICE[self.device]

    @cached_property
    def rates(self) -> dict[str, float]:
        """Operations a second at each precision, measured once."""
        size = 128 if self.quick or self.compile_only else None
        return {precision: matmul_rate(self.device, precision, self.effort, size) for precision in self.precisions}


@dataclass(frozen=True)
class Subject:
    """One experiment's encoder."""

    layout: Layout
    config: PolicyConfig
    weights: Weights

    def flops(self) -> int:
        """Of one sample's forward pass through the encoder."""
        nodes, config = self.layout.graph.num_nodes, self.config
        pairs = attending_pairs(nodes, self.layout.graph.num_ones, self.weights.masked)
        return encoder_flops(nodes, config.embed_dim, config.ff_dim, pairs)

    def draw(self, batch: int, count: int, seed: int) -> list[Tensor]:
        """`count` sets of tokens [B, N, E]."""
        device = self.weights.mask.device
        generator = torch.Generator(device=device).manual_seed(seed)
        shape = (batch, self.layout.graph.num_nodes, self.config.embed_dim)
        return [torch.randn(shape, generator=generator, device=device) for _ in range(count)]


def load_subject(job: EncoderJob, experiment: str) -> Subject:
    loaded = load_experiment(experiment)
    layout, config = loaded.layout(), loaded.policy_config()
    num_layers = min(config.num_layers, job.sizes.max_layers)
    config = PolicyConfig.from_dict({**config.to_dict(), "num_layers": num_layers})
    torch.manual_seed(0)
    return Subject(layout, config, take_apart(Encoder(layout.graph, config), config, job.device))
