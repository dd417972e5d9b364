"""Timing with CUDA graphs."""

import pytest
import torch

from body_transformer.bench.clocks import QUICK, Step, time_as_graph, time_with_events, warm_up
from body_transformer.bench.harness import EVENTS, GRAPH, Bench, Contender, Timing

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def measure(*contenders: Contender) -> dict[str, Timing]:
    return Bench(device="cuda", quick=True).time("here", contenders)


def test_a_step_is_timed_as_a_graph_and_longer_work_takes_longer() -> None:
    def product(size: int) -> Contender:
        def build() -> list[Step]:
            matrices = [torch.randn(size, size, device="cuda") for _ in range(3)]
            return [lambda a=a: a @ a for a in matrices]

        return Contender(str(size), build)

    outcomes = measure(product(512), product(4096))
    assert [outcome.method for outcome in outcomes.values()] == [GRAPH, GRAPH]
    assert 0 < outcomes["512"].ms < outcomes["4096"].ms
    assert outcomes["4096"].peak_mib > outcomes["512"].peak_mib > 0


def test_gradients_and_an_optimizer_are_captured() -> None:
    def build() -> list[Step]:
        weight = torch.randn(64, 64, device="cuda", requires_grad=True)
        optimizer = torch.optim.Adam([weight], fused=True, capturable=True)
        x = torch.randn(64, 64, device="cuda")

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            (x @ weight).square().mean().backward()
            optimizer.step()

        return [step]

    outcome = measure(Contender("adam", build))["adam"]
    assert (outcome.method, outcome.error) == (GRAPH, None)


def test_a_step_that_cannot_be_captured_is_timed_with_events_and_the_next_one_as_a_graph() -> None:
    x = torch.ones(8, device="cuda")
    waits, simple = Contender("waits", lambda: [lambda: x.sum().item()]), Contender("next", lambda: [lambda: x + 1])
    outcomes = measure(waits, simple)
    assert outcomes["waits"].method == EVENTS
    assert outcomes["waits"].error is not None
    assert outcomes["waits"].error.startswith("no CUDA graph")
    assert (outcomes["next"].method, outcomes["next"].error) == (GRAPH, None)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_a_graph_gives_the_time_of_one_step_without_launches() -> None:
    x = torch.ones(8, device="cuda")
    steps = [lambda: [x + 1 for _ in range(100)] for _ in range(3)]
    warm_up(steps)
    assert 0 < time_as_graph(steps, QUICK) < 0.7 * time_with_events(steps, QUICK)
