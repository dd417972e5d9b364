"""Clocks and the harness: turns, samples and failures."""

import statistics
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from body_transformer.bench.clocks import (
    CACHE_BYTES,
    MAX_SETS,
    Effort,
    Step,
    num_sets,
    take_turns,
)
from body_transformer.bench.harness import EVENTS, GRAPH, Bench, Contender, first_line


class FakeClock:
    """A clock that only steps advance."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []

    def __call__(self) -> float:
        return self.now

    def step(self, name: str, *seconds: float) -> Callable[[], None]:
        left = list(seconds)

        def run() -> None:
            self.calls.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run


def test_contenders_take_turns_and_every_call_is_timed() -> None:
    clock = FakeClock()
    samples = take_turns([[clock.step("a", 0.002)], [clock.step("b", 0.005)]], rounds=3, clock=clock)
    assert clock.calls == ["a", "b"] * 3
    assert samples == [pytest.approx([2, 2, 2]), pytest.approx([5, 5, 5])]


def test_a_turn_may_have_several_calls() -> None:
    clock = FakeClock()
    take_turns([[clock.step("a", 1)], [clock.step("b", 1)]], rounds=2, calls=2, clock=clock)
    assert clock.calls == ["a", "a", "b", "b"] * 2


def test_warm_calls_do_not_count_and_a_round_may_have_any_order() -> None:
    clock = FakeClock()
    contenders = [[clock.step("a", 9, 0.001)], [clock.step("b", 9, 0.002)]]
    samples = take_turns(contenders, rounds=1, warm=1, order=lambda count: reversed(range(count)), clock=clock)
    assert clock.calls == ["b", "b", "a", "a"]
    assert samples == [pytest.approx([1]), pytest.approx([2])]


def test_a_contenders_input_sets_are_used_in_rotation() -> None:
    clock = FakeClock()
    take_turns([[clock.step(name, 1) for name in "abc"]], rounds=5, clock=clock)
    assert clock.calls == ["a", "b", "c", "a", "b"]


def test_samples_fill_the_budget_within_bounds() -> None:
    effort = Effort(budget_s=1.0, min_samples=5, max_samples=50)
    assert [effort.num_samples(seconds) for seconds in (10.0, 0.1, 0.001, 0.0)] == [5, 10, 50, 50]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_input_sets_together_do_not_fit_into_the_cache(device: str) -> None:
    cache = CACHE_BYTES[device]
    assert num_sets(2 * cache, device) == 1
    assert num_sets(cache // 2, device) == 4
    assert num_sets(1, device) == MAX_SETS


def test_a_contender_that_fails_becomes_a_row_with_the_reason_and_the_others_are_timed() -> None:
    def broken() -> list[Callable[[], None]]:
        raise RuntimeError("\n  no such kernel\n  at line 3")

    contenders = [
        Contender("broken", broken),
        Contender("divides", lambda: [lambda: 1 / 0]),
        Contender("works", lambda: [lambda: None]),
    ]
    said: list[str] = []
    bench = Bench(device="cpu", quick=True, say=said.append)
    outcomes = bench.time("here", contenders)
    assert said == [f"here: {name}" for name in outcomes] == ["here: broken", "here: divides", "here: works"]
    assert outcomes["broken"].shown == outcomes["divides"].shown == "failed"
    assert outcomes["works"].ms == statistics.median(outcomes["works"].samples) >= 0
    assert bench.notes == [
        "here, broken: RuntimeError: no such kernel",
        "here, divides: ZeroDivisionError: division by zero",
    ]


def test_by_the_wall_clock_every_call_of_every_turn_is_a_sample() -> None:
    clock, effort = FakeClock(), Effort(budget_s=0.0, min_samples=6, max_samples=6, calls=3)
    contenders = [Contender(name, lambda name=name: [clock.step(name, 0.0)]) for name in "ab"]
    timings = Bench(device="cuda").time("here", contenders, effort, wall_clock=True)
    assert clock.calls == [*"aabb", *"aaabbb" * 2]  # two untimed calls per contender come first
    assert [len(timing.samples) for timing in timings.values()] == [6, 6]


def test_interrupting_ends_the_run() -> None:
    def interrupted() -> list[Callable[[], None]]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Bench(device="cpu", quick=True).time("here", [Contender("a", interrupted)])


def test_an_error_without_a_message_is_shown_by_its_type() -> None:
    assert first_line(MemoryError()) == "MemoryError"


# -- a fake GPU --------------------------------------------------------------------------------------------------------


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the clocks, and the parts of `torch.cuda` that the harness uses."""
    replaced = {
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "reset_peak_memory_stats": lambda: None,
        "memory_allocated": lambda: 2**20,
        "max_memory_allocated": lambda: 3 * 2**20,
    }
    for name, value in replaced.items():
        monkeypatch.setattr(torch.cuda, name, value)

    def time_as_graph(steps: list[Step], effort: Effort) -> float:
        if steps[0]() == "waits":
            raise RuntimeError("operation not permitted when stream is capturing")
        return 0.03

    clocks = {"warm_up": lambda steps: None, "time_as_graph": time_as_graph, "time_with_events": lambda *rest: 0.13}
    for name, value in clocks.items():
        monkeypatch.setattr(f"body_transformer.bench.harness.{name}", value)


@pytest.mark.usefixtures("fake_gpu")
def test_on_a_gpu_each_contender_has_its_time_its_method_and_its_memory() -> None:
    def broken() -> list[Step]:
        raise RuntimeError("out of memory")

    contenders = [
        Contender("graph", lambda: [lambda: None]),
        Contender("waits", lambda: [lambda: "waits"]),
        Contender("broken", broken),
    ]
    bench = Bench(device="cuda", quick=True)
    outcomes = bench.time("here", contenders)
    assert (outcomes["graph"].ms, outcomes["graph"].method) == (0.03, GRAPH)
    assert outcomes["graph"].peak_mib == 2
    assert (outcomes["waits"].ms, outcomes["waits"].method) == (0.13, EVENTS)
    assert bench.notes == [
        "here, waits: no CUDA graph, launches count: RuntimeError: operation not permitted when stream is capturing",
        "here, broken: RuntimeError: out of memory",
    ]


@pytest.mark.usefixtures("fake_gpu")
def test_consecutive_contenders_of_one_family_share_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    monkeypatch.setitem(sys.modules, "torch._dynamo", SimpleNamespace())
    monkeypatch.setattr(torch.compiler, "reset", lambda: happened.append("reset"))

    def contender(name: str, family: str) -> Contender:
        def build() -> list[Step]:
            happened.append(name)
            return [lambda: None]

        return Contender(name, build, family)

    contenders = [contender("a fwd", "a"), contender("a bwd", "a"), contender("b fwd", "b"), contender("c", "")]
    Bench(device="cuda", quick=True).time("here", [*contenders, contender("d", "")])
    assert happened == ["reset", "a fwd", "a bwd", "reset", "b fwd", "reset", "c", "reset", "d"]
