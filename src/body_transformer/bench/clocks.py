"""Clocks: replayed CUDA graphs between device events on a GPU, and the wall clock on a CPU.

Inputs rotate, so that they come from memory and not from the cache. On a CPU, contenders take turns, so that a machine
that slows down slows all of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

Step = Callable[[], object]
"""One run of the timed work, on its own inputs."""
Clock = Callable[[], float]

CACHE_BYTES = {"cuda": 60 * 2**20, "cpu": 32 * 2**20}
"""Size of a device's last-level cache: the H200's L2, a server CPU's share of the L3."""
MAX_SETS = 16


@dataclass(frozen=True)
class Effort:
    """Amount of timing per contender."""

    budget_s: float = 0.5
    """Time for its samples in seconds, without warm-up."""
    min_samples: int = 11
    max_samples: int = 51
    """Bounds on the number of samples on a CPU."""
    calls: int = 1
    """Consecutive calls per turn on a CPU; all but the first find the caches filled by the same contender."""

    def num_samples(self, sample_s: float) -> int:
        wanted = int(self.budget_s / max(sample_s, 1e-9))
        return min(self.max_samples, max(self.min_samples, wanted))


QUICK = Effort(budget_s=0.02, min_samples=3, max_samples=5)
ONCE = Effort(budget_s=0.0, min_samples=1, max_samples=1)
"""One run without timing: contenders compile, and PyTorch keeps the compiled code in its cache on disk."""


def num_sets(set_bytes: int, device: str) -> int:
    """Return the number of input sets that together are at least twice as large as the cache, up to MAX_SETS."""
    return min(MAX_SETS, max(1, math.ceil(2 * CACHE_BYTES[device] / max(set_bytes, 1))))


# -- CPU clock ---------------------------------------------------------------------------------------------------------


def take_turns(
    contenders: Sequence[Sequence[Step]],
    rounds: int,
    calls: int = 1,
    *,
    warm: int = 0,
    order: Callable[[int], Iterable[int]] = range,
    clock: Clock = time.perf_counter,
) -> list[list[float]]:
    """Time contenders in turns and return the milliseconds of every call, one list per contender.

    Args:
        contenders: the steps of each contender, used in rotation.
        rounds: number of turns per contender.
        calls: timed calls per turn.
        warm: untimed calls before each timed one.
        order: number of contenders -> their order in one round.
    """
    samples: list[list[float]] = [[] for _ in contenders]
    for _ in range(rounds):
        for place in order(len(contenders)):
            steps, times = contenders[place], samples[place]
            for _ in range(calls):
                step = steps[len(times) % len(steps)]
                for _ in range(warm):
                    step()
                start = clock()
                step()
                times.append(1e3 * (clock() - start))
    return samples


# -- GPU clock ---------------------------------------------------------------------------------------------------------


def warm_up(steps: Sequence[Step], times: int = 3) -> None:
    """Run the steps on a side stream, as PyTorch requires before a capture; compilation and tuning happen here."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            for step in steps:
                step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()


def time_as_graph(steps: Sequence[Step], effort: Effort) -> float:
    """Return the median milliseconds of one step inside a replayed CUDA graph; the steps must be warm."""
    from triton.testing import do_bench_cudagraph

    # ten replays, which together last as long as the budget
    return _median_ms(do_bench_cudagraph, steps, rep=100 * effort.budget_s)


def time_with_events(steps: Sequence[Step], effort: Effort) -> float:
    """Return the median milliseconds of one step launched from Python; the steps must be warm."""
    from triton.testing import do_bench

    return _median_ms(do_bench, steps, rep=1000 * effort.budget_s)


def _median_ms(do_bench: Callable[..., float], steps: Sequence[Step], rep: float) -> float:
    # all return values are kept until the last step: reused memory would still be in the cache
    return do_bench(lambda: [step() for step in steps], rep=rep, return_mode="median") / len(steps)
