"""The harness of every benchmark, which takes contenders and returns one timing per contender.

A contender that fails becomes a row with the reason, and the run continues.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial

import torch

from .clocks import ONCE, QUICK, Effort, Step, num_sets, take_turns, time_as_graph, time_with_events, warm_up

Say = Callable[[str], None]
"""Function that shows a line of progress."""
GRAPH, EVENTS, CLOCK = "graph", "events", "clock"
"""Ways to time a contender: as a replayed CUDA graph, as launches between events, or by the wall clock."""


# -- contenders --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    """One implementation to time. Its steps are built when its turn comes and dropped afterwards."""

    name: str
    build: Callable[[], Sequence[Step]]
    """Function that makes the steps, one per input set."""
    family: str = ""
    """Consecutive contenders of one family share compiled code; one without a family shares none."""


@dataclass(frozen=True)
class Timing:
    """The time of one contender, or the reason why there is none."""

    ms: float | None = None
    method: str = ""
    """`GRAPH`, `EVENTS` or `CLOCK`."""
    peak_mib: float | None = None
    """Peak GPU memory, with weights and optimizer state, without shared inputs."""
    error: str | None = None
    """First line of the error; if there is a time, the reason why no CUDA graph could be captured."""
    samples: Sequence[float] = ()
    """Milliseconds of every call; empty unless the method is `CLOCK`."""

    @property
    def shown(self) -> float | str:
        return "failed" if self.ms is None else self.ms


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One run of a benchmark: the settings that all benchmarks share, its progress and its notes."""

    device: str
    quick: bool = False
    """Tiny sizes and few samples."""
    peers: bool = True
    """Whether other implementations are timed too."""
    compile_peers: bool = False
    """Whether peers that need `torch.compile` are included."""
    compile_only: bool = False
    """Run every contender once and time nothing."""
    say: Say = lambda line: None
    """Function that shows the progress."""
    notes: list[str] = field(default_factory=list)
    """Failures, and explanations of the results."""

    @property
    def effort(self) -> Effort:
        return ONCE if self.compile_only else QUICK if self.quick else Effort()

    @property
    def is_tiny(self) -> bool:
        """Whether small inputs suffice, because the times are meaningless."""
        return self.quick or self.compile_only

    def num_sets(self, set_bytes: int) -> int:
        return 1 if self.is_tiny else num_sets(set_bytes, self.device)

    def time(
        self, where: str, contenders: Sequence[Contender], effort: Effort | None = None, wall_clock: bool = False
    ) -> dict[str, Timing]:
        """Time all contenders: on a GPU one after the other, by the wall clock in turns. Return name -> timing.

        A note is added for each contender that failed or could not be captured.
        """
        effort, say = effort or self.effort, lambda name: self.say(f"{where}: {name}")
        if effort == ONCE:
            timings = _one_by_one(contenders, _run_once, say)
        elif self.device == "cuda" and not wall_clock:
            timings = _one_by_one(contenders, partial(_measure_on_gpu, effort=effort), say)
        else:
            timings = _measure_in_turns(contenders, effort, say)
        self.notes.extend(f"{where}, {name}: {timing.error}" for name, timing in timings.items() if timing.error)
        return timings


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__


def _one_by_one(
    contenders: Sequence[Contender], measure_one: Callable[[Contender], Timing], say: Say
) -> dict[str, Timing]:
    timings, family = {}, ""
    for contender in contenders:
        say(contender.name)
        _start_clean(keep_compiled=family != "" and contender.family == family)
        timings[contender.name] = measure_one(contender)
        family = contender.family
    return timings


def _run_once(contender: Contender) -> Timing:
    try:
        contender.build()[0]()
        return Timing()
    except Exception as error:
        return Timing(error=first_line(error))


def _measure_on_gpu(contender: Contender, effort: Effort) -> Timing:
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
        return Timing(error=first_line(error))


def _timed_on_gpu(steps: Sequence[Step], effort: Effort, peak_mib: float) -> Timing:
    try:
        return Timing(time_as_graph(steps, effort), GRAPH, peak_mib)
    except Exception as error:
        reason = f"no CUDA graph, launches count: {first_line(error)}"
    torch.cuda.synchronize()
    return Timing(time_with_events(steps, effort), EVENTS, peak_mib, reason)


def _measure_in_turns(contenders: Sequence[Contender], effort: Effort, say: Say) -> dict[str, Timing]:
    timings: dict[str, Timing] = {}
    ready: dict[str, Sequence[Step]] = {}
    num_samples = effort.max_samples
    _start_clean(keep_compiled=False)  # PyTorch stops compiling a function that has many versions
    for contender in contenders:
        say(contender.name)
        try:
            steps = contender.build()
            steps[0]()  # the first call may compile, so it is not timed
            call_ms = take_turns([steps], 1)[0][0]
        except Exception as error:
            timings[contender.name] = Timing(error=first_line(error))
            continue
        ready[contender.name] = steps
        num_samples = min(num_samples, effort.num_samples(call_ms / 1e3))
    samples = take_turns(list(ready.values()), num_samples // effort.calls, effort.calls)
    for name, times in zip(ready, samples, strict=True):
        timings[name] = Timing(statistics.median(times), CLOCK, samples=times)
    return {contender.name: timings[contender.name] for contender in contenders}


def _start_clean(keep_compiled: bool) -> None:
    """Drop code and memory of earlier contenders."""
    if "torch._dynamo" in sys.modules and not keep_compiled:
        torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()


# -- compiling ahead of time -------------------------------------------------------------------------------------------


def precompile(bench: Bench, parts: Sequence[Sequence[str]], workers: int) -> None:
    """Run `bot bench PART --compile-only` for each part, `workers` processes at a time.

    PyTorch keeps the compiled code in a cache on disk, where the timed run finds it. If a process fails, its peers are
    compiled in the timed run.
    """
    flags = ["--device", bench.device, *(["--quick"] if bench.quick else []), "--compile", "--compile-only"]
    with ThreadPoolExecutor(workers) as pool:
        futures = {pool.submit(_bench_in_process, [*part, *flags], workers): " ".join(part) for part in parts}
        try:
            for count, future in enumerate(as_completed(futures), 1):
                status = future.result()
                end = f" ended with status {status}; its peers will be compiled in the timed run" if status else ""
                bench.say(f"compiled {count} of {len(parts)}: {futures[future]}{end}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _bench_in_process(args: Sequence[str], workers: int) -> int:
    command = [sys.executable, "-m", "body_transformer.cli.main", "bench", *args]
    threads = str(max(1, (os.cpu_count() or 1) // workers))
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": threads},
    )
    return done.returncode
