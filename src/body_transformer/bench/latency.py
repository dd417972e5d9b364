"""`bot bench latency`: one observation in, one action out, as in a robot's control loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..deploy.onnx_file import frozen, to_onnx
from ..deploy.policy import INPUT, OUTPUT, open_session
from ..experiment import load_experiment
from ..model.policy import Policy
from .chart import Chart, Panel
from .clocks import Step, capture, take_turns, warm_up
from .floors import floor_ms, matmul_rate, policy_flops, read_ms
from .harness import BenchJob, first_line
from .results import ResultColumn, ResultTable

FAVOURED = "favoured"
"""Stands for the variant that the experiment favours."""
ALL = ("mlp", "transformer", "bot-hard")
"""Variants of `--variant all`: the three that differ in cost."""
QUICK_ROWS = ("a1-walk", "humanoid-mod")


@dataclass(frozen=True, kw_only=True)
class LatencyJob(BenchJob):
    """What `bot bench latency` times."""

    rows: Sequence[str]
    """Names of experiments."""
    variants: Sequence[str] = (FAVOURED,)

    @property
    def runners(self) -> dict[str, Runner]:
        return {name: runner for name, runner in RUNNERS.items() if runner.device == self.device}

    @property
    def where(self) -> str:
        return "one thread" if self.device == "cpu" else "GPU, float32"


def run(job: LatencyJob) -> tuple[list[ResultTable], Chart]:
    """Return the table and the chart; note the floor and failures."""
    with _one_thread():
        rate = matmul_rate(job.device, "fp32", job.effort, 128 if job.quick else None)
        job.notes.append(
            f"floor: the larger of the arithmetic at {rate / 1e9:,.0f} GFLOP/s, a large float32 product's, and of the "
            f"product of a matrix as large as the weights with a vector; both measured in this run, {job.where}"
        )
        variants = [None if variant == FAVOURED else variant for variant in job.variants]
        rows = [time_policy(job, name, variant, rate) for name in job.rows for variant in variants]
    table = ResultTable("latency", f"one observation, {job.where}, ms", _columns(job), rows)
    series = {f"{runner.title}, p50": table.numbers(f"{name}_p50") for name, runner in job.runners.items()}
    series["floor"] = table.numbers("floor")
    labels = [f"{row['experiment']} {row['variant']}" for row in rows]
    return [table], Chart("One observation, one action", [Panel(table.title, labels, series)])


def time_policy(job: LatencyJob, experiment: str, variant: str | None, rate: float) -> dict[str, Any]:
    """Time one experiment's policy with all runners in turns."""
    loaded = load_experiment(experiment)
    layout, config = loaded.layout(), loaded.policy_config(variant)
    job.say(f"{experiment} {config.variant}")
    torch.manual_seed(0)
    policy = Policy(layout, config).eval()
    obs = torch.randn(1, layout.obs_dim)
    flops = policy_flops(layout, config)
    arithmetic, memory = floor_ms(flops, rate), read_ms(4 * policy.num_parameters, job.device, job.effort)
    row: dict[str, Any] = {
        "experiment": experiment,
        "variant": config.variant,
        "nodes": layout.graph.num_nodes,
        "parameters": policy.num_parameters,
        "mflop": flops / 1e6,
        "arithmetic_ms": arithmetic,
        "weights_ms": memory,
        "floor": max(arithmetic, memory),
    }
    ready = _prepare(job, policy, obs, f"{experiment} {config.variant}")
    samples = dict(zip(ready, take_turns(list(ready.values()), *_rounds(job, ready)), strict=True))
    for name in job.runners:
        row |= {f"{name}_{key}": value for key, value in percentiles(samples.get(name)).items()}
    times = [row[f"{name}_p50"] for name in samples]
    return row | {"over_floor": min(times) / row["floor"] if times else None}


def percentiles(samples: Sequence[float] | None) -> dict[str, float | str]:
    """Return p50 and p99; `failed` without samples."""
    if not samples:
        return {"p50": "failed", "p99": "failed"}
    return {f"p{q}": float(np.percentile(samples, q)) for q in (50, 99)}


def _prepare(job: LatencyJob, policy: Policy, obs: Tensor, where: str) -> dict[str, list[Step]]:
    """Return the runners that work, warm; note the others."""
    ready = {}
    for name, runner in job.runners.items():
        try:
            step = runner.make(policy, obs)
            for _ in range(3):
                step()
            ready[name] = [step]
        except Exception as error:
            job.notes.append(f"{where}, {runner.title}: {first_line(error)}")
    return ready


def _rounds(job: LatencyJob, ready: Mapping[str, Sequence[Step]]) -> tuple[int, int]:
    """Return turns and calls per turn: enough calls for a p99, and turns in which a runner has the caches to itself."""
    if job.quick or not ready:
        return 2, 5
    slowest_ms = max(times[0] for times in take_turns(list(ready.values()), 1))
    calls = min(3000, max(300, int(4e3 / max(slowest_ms, 1e-3))))
    return calls // 50, 50


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# -- runners -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Runner:
    """One way to run a policy on one observation; the action ends in the CPU's memory, where a robot needs it."""

    title: str
    device: str
    make: Callable[[Policy, Tensor], Step]
    """A policy and an observation [1, O], both on the CPU -> one run."""


def _eager(policy: Policy, obs: Tensor) -> Step:
    def step() -> Tensor:
        with torch.inference_mode():
            out: Tensor = policy(obs)
            return out

    return step


def _onnx_runtime(policy: Policy, obs: Tensor) -> Step:
    """Run the policy as on a robot: exported, by ONNX Runtime on one thread."""
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

    @torch.no_grad()
    def forward() -> Tensor:
        out: Tensor = policy(held)
        return out

    warm_up([forward])
    graph, action = capture(forward)

    def step() -> Tensor:
        held.copy_(source, non_blocking=True)
        graph.replay()
        return action.cpu()

    return step


RUNNERS = {
    "eager": Runner("PyTorch eager", "cpu", _eager),
    "onnx": Runner("ONNX Runtime", "cpu", _onnx_runtime),
    "eager_gpu": Runner("PyTorch eager", "cuda", _eager_on_gpu),
    "graph": Runner("CUDA graph", "cuda", _graph_on_gpu),
}


def _columns(job: LatencyJob) -> list[ResultColumn]:
    return [
        ResultColumn("experiment", "experiment"),
        ResultColumn("variant", "variant"),
        ResultColumn("parameters", "parameters", "count"),
        ResultColumn("mflop", "MFLOP", "number"),
        *(
            ResultColumn(f"{name}_{q}", f"{runner.title} {q}", "number")
            for name, runner in job.runners.items()
            for q in ("p50", "p99")
        ),
        ResultColumn("arithmetic_ms", "arithmetic floor", "number"),
        ResultColumn("weights_ms", "weights floor", "number"),
        ResultColumn("over_floor", "best p50 / floor", "ratio"),
    ]
