"""`bot bench latency`: one observation in, one action out, as in a robot's control loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..deploy.onnx_file import frozen, to_onnx
from ..deploy.session import INPUT, OUTPUT, open_session
from ..experiment import load_experiment
from ..model.policy import Policy
from .clocks import Effort, Step, warm_up
from .floors import floor_ms, matmul_rate, policy_flops, read_ms
from .harness import Bench, Contender
from .results import ResultColumn, ResultTable

MakeStep = Callable[[Policy, Tensor], Step]
"""A policy and an observation [1, O], both on the CPU -> a step that returns the action in CPU memory, for a robot."""

ALL = ("mlp", "transformer", "bot-hard")
"""Variants of `--variant all`, which differ in cost."""
QUICK_ROWS = ("a1-walk", "humanoid-mod")
EFFORT = Effort(budget_s=4.0, min_samples=300, max_samples=3000, calls=50)
"""Enough calls for a p99."""
QUICK_EFFORT = Effort(budget_s=0.0, min_samples=10, max_samples=10, calls=5)


def run(bench: Bench, rows: Sequence[str], variants: Sequence[str | None]) -> list[ResultTable]:
    """Time the policies of the experiments `rows`; a variant of None is the experiment's favoured one."""
    where = "one thread" if bench.device == "cpu" else "GPU, float32"
    with _one_thread():
        rate = matmul_rate(bench.device, "fp32", bench.effort, 128 if bench.quick else None)
        bench.notes.append(
            f"floor: the larger of the arithmetic floor (at {rate / 1e9:,.0f} GFLOP/s, the rate of a large float32 "
            f"product) and the weights floor (a matrix as large as the weights times a vector), measured in this run, "
            f"{where}"
        )
        timed = [time_policy(bench, name, variant, rate) for name in rows for variant in variants]
    runners = RUNNERS[bench.device]
    columns = (
        ResultColumn("experiment", "experiment"),
        ResultColumn("variant", "variant"),
        ResultColumn("parameters", "parameters", "count"),
        ResultColumn("mflop", "MFLOP", "number"),
        *(
            ResultColumn(f"{name}_{q}", f"{title} {q}", "number")
            for name, (title, _) in runners.items()
            for q in ("p50", "p99")
        ),
        ResultColumn("arithmetic_ms", "arithmetic floor", "number"),
        ResultColumn("weights_ms", "weights floor", "number"),
        ResultColumn("over_floor", "best p50 / floor", "ratio"),
    )
    series = {f"{title}, p50": itemgetter(f"{name}_p50") for name, (title, _) in runners.items()}
    series["floor"] = itemgetter("floor")
    title = f"one observation, {where}, ms"
    return [ResultTable("latency", title, columns, timed, "{experiment} {variant}", series)]


def time_policy(bench: Bench, experiment: str, variant: str | None, rate: float) -> dict[str, Any]:
    """Time one experiment's policy with all runners in turns; `rate` is the operations per second of a product."""
    loaded = load_experiment(experiment)
    layout, config = loaded.layout(), loaded.policy_config(variant)
    torch.manual_seed(0)
    policy = Policy(layout, config).eval()
    obs = torch.randn(1, layout.obs_dim)
    flops = policy_flops(layout, config)
    arithmetic, memory = floor_ms(flops, rate), read_ms(4 * policy.num_parameters, bench.device, bench.effort)
    floor = max(arithmetic, memory)
    row: dict[str, Any] = {
        "experiment": experiment,
        "variant": config.variant,
        "nodes": layout.graph.num_nodes,
        "parameters": policy.num_parameters,
        "mflop": flops / 1e6,
        "arithmetic_ms": arithmetic,
        "weights_ms": memory,
        "floor": floor,
    }
    runners = RUNNERS[bench.device]
    contenders = [Contender(title, partial(steps_of, make, policy, obs)) for title, make in runners.values()]
    effort = QUICK_EFFORT if bench.quick else EFFORT
    timings = bench.time(f"{experiment} {config.variant}", contenders, effort, wall_clock=True)
    for name, (title, _) in runners.items():
        row |= {f"{name}_{key}": value for key, value in percentiles(timings[title].samples).items()}
    medians = [timing.ms for timing in timings.values() if timing.ms is not None]
    return row | {"over_floor": min(medians) / floor if medians else None}


def steps_of(make: MakeStep, policy: Policy, obs: Tensor) -> list[Step]:
    return [make(policy, obs)]


def percentiles(samples: Sequence[float]) -> dict[str, float | str]:
    """Return p50 and p99; `failed` without samples."""
    return {f"p{q}": float(np.percentile(samples, q)) if samples else "failed" for q in (50, 99)}


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# -- runners -----------------------------------------------------------------------------------------------------------


def _eager(policy: Policy, obs: Tensor) -> Step:
    def step() -> Tensor:
        with torch.inference_mode():
            out: Tensor = policy(obs)
            return out

    return step


def _onnx_runtime(policy: Policy, obs: Tensor) -> Step:
    """Run the exported policy in ONNX Runtime on one thread, as on a robot."""
    session, feed = open_session(to_onnx(frozen(policy)), "memory", batch=1), {INPUT: obs.numpy()}
    return lambda: session.run([OUTPUT], feed)


def _eager_on_gpu(policy: Policy, obs: Tensor) -> Step:
    policy, source = policy.to("cuda"), obs.pin_memory()

    def step() -> Tensor:
        with torch.inference_mode():
            out: Tensor = policy(source.to("cuda", non_blocking=True)).cpu()
            return out

    return step


def _graph_on_gpu(policy: Policy, obs: Tensor) -> Step:
    policy, source = policy.to("cuda"), obs.pin_memory()
    held = obs.to("cuda")

    with torch.no_grad():
        warm_up([lambda: policy(held)])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            action: Tensor = policy(held)

    def step() -> Tensor:
        held.copy_(source, non_blocking=True)
        graph.replay()
        return action.cpu()

    return step


RUNNERS: Mapping[str, Mapping[str, tuple[str, MakeStep]]] = {
    "cpu": {"eager": ("PyTorch eager", _eager), "onnx": ("ONNX Runtime", _onnx_runtime)},
    "cuda": {"eager_gpu": ("PyTorch eager", _eager_on_gpu), "graph": ("CUDA graph", _graph_on_gpu)},
}
"""Device -> key in the results -> title, and function that prepares a step."""
