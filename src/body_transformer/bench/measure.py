"""Contenders side by side: whoever fails becomes a row that says why, never the end of the run."""

from __future__ import annotations

import gc
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from .timing import ONCE, Effort, Step, take_turns, time_as_graph, time_with_events, warm_up

Say = Callable[[str], None]
"""Takes a line of progress."""
GRAPH = "graph"
EVENTS = "events"
CLOCK = "clock"


@dataclass(frozen=True)
class Contender:
    """Something to be timed. Its steps are made only when its turn comes, and dropped afterwards."""

    name: str
    build: Callable[[], Sequence[Step]]
    """Makes the steps, one an input set."""
    family: str = ""
    """Neighbours of one family share what they compiled; without a family a contender begins with nothing compiled."""


@dataclass(frozen=True)
class Outcome:
    """What came of timing one contender: a time, or the reason why there is none."""

    ms: float | None = None
    method: str = ""
    """How it was timed: as a replayed CUDA graph, as launches between events, or by the wall clock."""
    peak_mib: float | None = None
    """The most that was allocated on the GPU at once, with weights and optimiser, without shared inputs."""
    error: str | None = None
    """The first line of what went wrong; with a time beside it, why there is no graph."""

    @property
    def shown(self) -> float | str:
        return "failed" if self.ms is None else self.ms


def measure(contenders: Sequence[Contender], device: str, effort: Effort, say: Say) -> dict[str, Outcome]:
    """Name -> outcome. On a GPU one after the other; on a CPU in turns."""
    if effort == ONCE:
        return _one_by_one(contenders, _run_once, say)
    if device == "cuda":
        return _one_by_one(contenders, partial(_measure_on_gpu, effort=effort), say)
    return _measure_on_cpu(contenders, effort, say)


def complaints(where: str, outcomes: Mapping[str, Outcome]) -> list[str]:
    """One line for every contender that failed, or that could not be captured."""
    return [f"{where}, {name}: {outcome.error}" for name, outcome in outcomes.items() if outcome.error]


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__


def _one_by_one(
    contenders: Sequence[Contender], measure_one: Callable[[Contender], Outcome], say: Say
) -> dict[str, Outcome]:
    outcomes, family = {}, ""
    for contender in contenders:
        say(contender.name)
        _start_clean(keep_compiled=family != "" and contender.family == family)
        outcomes[contender.name] = measure_one(contender)
        family = contender.family
    return outcomes


def _run_once(contender: Contender) -> Outcome:
    """No time comes of it."""
    try:
        contender.build()[0]()
        return Outcome()
    except Exception as error:
        return Outcome(error=first_line(error))


def _measure_on_gpu(contender: Contender, effort: Effort) -> Outcome:
    before = torch.cuda.memory_allocated()
    try:
        steps = contender.build()
        warm_up(steps)
        torch.cuda.reset_peak_memory_stats()
        steps[0]()
        torch.cuda.synchronize()
        peak_mib = (torch.cuda.max_memory_allocated() - before) / 2**20
        return _timed_on_gpu(steps, effort, peak_mib)
    except Exception as error:
        return Outcome(error=first_line(error))


def _timed_on_gpu(steps: Sequence[Step], effort: Effort, peak_mib: float) -> Outcome:
    try:
        return Outcome(time_as_graph(steps, effort), GRAPH, peak_mib)
    except Exception as error:
        reason = f"no CUDA graph, launches count: {first_line(error)}"
    torch.cuda.synchronize()
    return Outcome(time_with_events(steps, effort), EVENTS, peak_mib, reason)


def _measure_on_cpu(contenders: Sequence[Contender], effort: Effort, say: Say) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    ready: dict[str, Sequence[Step]] = {}
    rounds = effort.max_samples
    _start_clean(keep_compiled=False)  # PyTorch stops compiling a function of which it holds many versions
    for contender in contenders:
        say(contender.name)
        try:
            steps = contender.build()
            take_turns([steps], 1)
            ((warm,),) = take_turns([steps], 1)
        except Exception as error:
            outcomes[contender.name] = Outcome(error=first_line(error))
            continue
        ready[contender.name] = steps
        rounds = min(rounds, effort.num_samples(warm / 1e3))
    samples = take_turns(list(ready.values()), rounds)
    outcomes |= {name: Outcome(statistics.median(times), CLOCK) for name, times in zip(ready, samples, strict=True)}
    return {contender.name: outcomes[contender.name] for contender in contenders}


def _start_clean(keep_compiled: bool) -> None:
    """What an earlier contender compiled or held must not count here."""
    if "torch._dynamo" in sys.modules and not keep_compiled:
        torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()
