"""Clocks: CUDA-graph replays between device events on a GPU, turns by the wall clock on a CPU."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

T = TypeVar("T")
Step = Callable[[], object]
"""One run of what is timed, on inputs of its own."""
Clock = Callable[[], float]

CACHE_BYTES = {"cuda": 60 * 2**20, "cpu": 32 * 2**20}
"""What a device's last cache may hold: the H200's L2, a server CPU's share of the L3."""
MAX_SETS, MAX_CALLS = 16, 64


@dataclass(frozen=True)
class Effort:
    """How long one contender is timed."""

    budget_s: float = 0.5
    """Time for its samples, once warm."""
    min_samples: int = 11
    max_samples: int = 51
    graph_ms: float = 1.0
    """A replayed graph is at least about this long, so that its launch does not count."""

    def num_samples(self, sample_s: float) -> int:
        wanted = int(self.budget_s / max(sample_s, 1e-9))
        return min(self.max_samples, max(self.min_samples, wanted))


QUICK = Effort(budget_s=0.02, min_samples=3, max_samples=5)
ONCE = Effort(budget_s=0.0, min_samples=1, max_samples=1)
"""Nothing is timed: whatever compiles does so, and what it compiled stays in the compiler's cache on disk."""


def num_sets(set_bytes: int, device: str) -> int:
    """How many input sets are used in turn, so that together they do not fit into the cache: the floor is memory's."""
    return min(MAX_SETS, max(1, math.ceil(2 * CACHE_BYTES[device] / max(set_bytes, 1))))


# -- CPU ---------------------------------------------------------------------------------------------------------------


def take_turns(
    contenders: Sequence[Sequence[Step]], rounds: int, calls: int = 1, clock: Clock = time.perf_counter
) -> list[list[float]]:
    """Milliseconds of every call, a list for each contender.

    In a round each contender is called `calls` times before the next one's turn, so that a machine that slows down
    slows all of them; a contender's steps are used in rotation.
    """
    samples: list[list[float]] = [[] for _ in contenders]
    for _ in range(rounds):
        for steps, times in zip(contenders, samples, strict=True):
            for _ in range(calls):
                step = steps[len(times) % len(steps)]
                start = clock()
                step()
                times.append(1e3 * (clock() - start))
    return samples


def best_on_cpu(steps: Sequence[Step], effort: Effort, clock: Clock = time.perf_counter) -> float:
    """Milliseconds of one step by itself, the least of all samples: what the machine can do."""
    ((first,),) = take_turns([steps], 1, clock=clock)
    (samples,) = take_turns([steps], effort.num_samples(first / 1e3), clock=clock)
    return min(samples)


# -- GPU ---------------------------------------------------------------------------------------------------------------


def warm_up(steps: Sequence[Step], times: int = 3) -> None:
    """Runs on a side stream, as PyTorch asks before a capture; whatever compiles or tunes itself does so here."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            for step in steps:
                step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()


def time_with_events(steps: Sequence[Step], effort: Effort) -> float:
    """Median milliseconds of one step, launched from Python; the steps are warm."""
    (first,) = _event_times(steps[:1], 1)
    return statistics.median(_event_times(steps, effort.num_samples(first / 1e3)))


def time_as_graph(steps: Sequence[Step], effort: Effort) -> float:
    """Median milliseconds of one step as part of a replayed CUDA graph; the steps are warm."""
    calls = len(steps)  # every set as often as the others
    one_ms = _replay_ms(steps, calls, QUICK) / calls
    wanted = min(MAX_CALLS, effort.graph_ms / max(one_ms, 1e-6))
    calls *= max(1, math.ceil(wanted / len(steps)))
    return _replay_ms(steps, calls, effort) / calls


def _replay_ms(steps: Sequence[Step], calls: int, effort: Effort) -> float:
    # what the calls return is kept until the last: in memory that is reused, writing would be the cache's work
    graph, _ = capture(lambda: [steps[call % len(steps)]() for call in range(calls)])
    for _ in range(3):
        graph.replay()
    (first,) = _event_times([graph.replay], 1)
    return statistics.median(_event_times([graph.replay], effort.num_samples(first / 1e3)))


def capture(body: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
    """The body as a CUDA graph, and what it returned: every replay writes there anew. The body is warm."""
    stream = torch.cuda.current_stream()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            out = body()
    except BaseException:
        torch.cuda.set_stream(stream)  # a capture that fails at its end leaves its own stream current
        raise
    torch.cuda.synchronize()
    return graph, out


def _event_times(steps: Sequence[Step], count: int) -> list[float]:
    pairs = [(_event(), _event()) for _ in range(count)]
    for k, (start, end) in enumerate(pairs):
        start.record()
        steps[k % len(steps)]()
        end.record()
    torch.cuda.synchronize()
    return [float(start.elapsed_time(end)) for start, end in pairs]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
