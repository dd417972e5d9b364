"""The options of `bot bench`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ..errors import unknown
from .run_options import Flag

if TYPE_CHECKING:
    from ..bench.harness import Bench
    from ..bench.paper.sweeps import PaperSettings

Rows = Annotated[tuple[str, ...], tyro.conf.arg(metavar="ROW")]
DEVICES = ("cpu", "cuda")


@dataclass
class OutputOptions:
    json: Flag = False
    """Print one JSON object instead of tables."""
    out: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for results.json, table.md and the figures."""


@dataclass
class TimedOptions(OutputOptions):
    device: Annotated[str | None, tyro.conf.arg(metavar="cpu|cuda")] = None
    """Device to run on; by default the GPU if there is one."""
    quick: Flag = False
    """Use tiny sizes and few samples, only to check that the benchmark runs; its times mean nothing."""

    def bench(self) -> Bench:
        from ..bench.harness import Bench

        return Bench(device=find_device(self.device), quick=self.quick, say=progress_lines())


@dataclass
class PeerOptions(TimedOptions):
    no_peers: Flag = False
    """Time this package alone."""
    compile: Flag = False
    """Include compiled peers on the CPU, where they need a C++ compiler; on a GPU they are always included."""
    compile_workers: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Compile the peers first, in this many processes; the timed run finds them in PyTorch's cache on disk."""
    compile_only: Flag = False
    """Compile the peers and time nothing."""

    def bench(self) -> Bench:
        if self.compile_workers < 0:
            raise ValueError(f"--compile-workers must be 0 or more; got {self.compile_workers}")
        bench = super().bench()
        compile_peers = not self.no_peers and (self.compile or bench.device == "cuda")
        return replace(bench, peers=not self.no_peers, compile_peers=compile_peers, compile_only=self.compile_only)


@dataclass
class AttentionOptions(PeerOptions):
    """Time masked attention alone, over random bodies."""

    rows: Rows = ()
    """Rows to time: shapes such as 8192x2x16x32, or scaling, the cost per node; by default all."""
    dtypes: Annotated[tuple[str, ...], tyro.conf.arg(metavar="DTYPE")] = ()
    """Dtypes to time: bf16, fp32 or tf32; by default bf16 and fp32 on a GPU and fp32 on a CPU."""


@dataclass
class EncoderOptions(PeerOptions):
    """Time the whole encoder, and training steps of the policy and of imitation; measure the encoder's accuracy."""

    rows: Rows = ()
    """Parts to run: ppo, policy, imitation or errors; by default all."""


@dataclass
class LatencyOptions(TimedOptions):
    """Time one observation through each experiment's policy: p50 and p99 on one thread."""

    rows: Rows = ()
    """Experiments to time, by name or YAML file; by default all that are shipped."""
    variant: Annotated[str, tyro.conf.arg(metavar="VARIANT|favoured|all")] = "favoured"
    """A variant, `favoured` for each experiment's own, or `all` for mlp, transformer and bot-hard."""


@dataclass
class PpoOptions(TimedOptions):
    """Time environment steps, iterations of PPO, and the parts of an iteration."""

    task: Annotated[str, tyro.conf.arg(metavar="EXPERIMENT")] = "humanoid-mod"
    """Environment: humanoid-mod, humanoid-hill or humanoid-board."""
    variants: Annotated[tuple[str, ...], tyro.conf.arg(metavar="VARIANT …")] = ()
    """Architectures; by default mlp, transformer, bot-hard and bot-mix."""
    rounds: int = 15
    """Timed iterations of each architecture."""


@dataclass
class PaperOptions(OutputOptions):
    """Time masked attention for one sample and one head on one CPU thread, as in the paper's Section 5.4 and appendix.

    Compares runtime and FLOPs of vanilla NumPy, the paper's masked NumPy, ours in NumPy and C, and PyTorch, over
    sequence lengths, sparsities and real bodies. The full setting took seven minutes on two shared cores (2.3 GHz);
    --quick takes about fifteen seconds. With --out, a stopped run is resumed by the same command.
    """

    quick: Flag = False
    """Run every part with a few draws only."""
    draws: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Random inputs and masks per sequence length; 10000 in the full setting."""
    masks: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Random masks per number of nodes, spread over the sparsities; 50000 in the full setting."""
    body_draws: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Random inputs per real body; 1000 in the full setting."""
    head_dim: int = 64
    """Width of the head, which the paper does not give; its imitation policies have 64, its RL policies 32."""
    dtype: Literal["float32", "float64"] = "float32"
    """Arithmetic; the longest sequence is measured in both."""
    exp_flops: int = 1
    """Operations of one exponential: the appendix's c2, which the paper does not give."""
    seed: int = 0
    """Seed of inputs and masks."""
    overwrite: Flag = False
    """Discard the points of a stopped run with other settings in --out, instead of ending with an error."""

    def settings(self) -> PaperSettings:
        from ..bench.paper.sweeps import QUICK, PaperSettings

        options = {field.name: getattr(self, field.name, None) for field in fields(PaperSettings)}
        given = {name: value for name, value in options.items() if value is not None}
        return replace(QUICK if self.quick else PaperSettings(), **given)


def find_device(given: str | None) -> str:
    """Return the given device; by default the GPU if there is one."""
    if given is not None and given not in DEVICES:
        raise ValueError(unknown("device", given, DEVICES))
    import torch

    if given == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: PyTorch finds no GPU here; --device cpu runs anywhere")
    return given or ("cuda" if torch.cuda.is_available() else "cpu")


def progress_lines() -> Callable[[str], None]:
    """Return a function that prints a line on standard error, after the seconds since now."""
    start = time.perf_counter()
    return lambda line: print(f"[{time.perf_counter() - start:4.0f} s] {line}", file=sys.stderr, flush=True)
