"""`bot bench latency`: one observation in, one action out, as a robot's control loop asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..errors import install
from ..experiment import load_experiment
from ..model.policy import Policy
from .chart import Chart, Panel
from .floors import floor_ms, matmul_rate, policy_flops, read_ms
from .latency_runners import RUNNERS, Runner
from .measure import Say, first_line
from .results import Column, ResultTable
from .timing import QUICK, Effort, Step, take_turns

FAVOURED = "favoured"
"""Stands for the variant that the experiment favours."""
ALL = ("mlp", "transformer", "bot-hard")
"""What `--variant all` means: the three that cost differently."""
QUICK_ROWS = ("a1-walk", "humanoid-mod")


@dataclass(frozen=True)
class LatencyJob:
    """What to time."""

    device: str
    rows: Sequence[str]
    """Names of experiments."""
    variants: Sequence[str] = (FAVOURED,)
    quick: bool = False

    @property
    def runners(self) -> dict[str, Runner]:
        return {name: runner for name, runner in RUNNERS.items() if runner.device == self.device}

    @property
    def effort(self) -> Effort:
        return QUICK if self.quick else Effort()


def run(job: LatencyJob, say: Say) -> tuple[list[ResultTable], list[str], Chart]:
    """The table, what went wrong, and the chart."""
    with _one_thread():
        rate = matmul_rate(job.device, "fp32", job.effort, 128 if job.quick else None)
        rows, notes = [], [_explain(job, rate)]
        for name in job.rows:
            for variant in job.variants:
                row, wrong = time_policy(job, name, None if variant == FAVOURED else variant, rate, say)
                rows.append(row)
                notes += wrong
    table = ResultTable("latency", f"one observation, {_where(job)}, ms", _columns(job), rows)
    return [table], list(dict.fromkeys(notes)), _chart(job, table)


def time_policy(
    job: LatencyJob, experiment: str, variant: str | None, rate: float, say: Say
) -> tuple[dict[str, Any], list[str]]:
    """One experiment's policy through every runner, in turns."""
    loaded = load_experiment(experiment)
    layout, config = loaded.layout(), loaded.policy_config(variant)
    say(f"{experiment} {config.variant}")
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
    ready, notes = _prepare(job, policy, obs, f"{experiment} {config.variant}")
    samples = dict(zip(ready, take_turns(list(ready.values()), *_rounds(job, ready)), strict=True))
    for name in job.runners:
        row |= {f"{name}_{key}": value for key, value in percentiles(samples.get(name)).items()}
    times = [row[f"{name}_p50"] for name in samples]
    return row | {"over_floor": min(times) / row["floor"] if times else None}, notes


def percentiles(samples: Sequence[float] | None) -> dict[str, float | str]:
    """p50 and p99, or that there are none."""
    if not samples:
        return {"p50": "failed", "p99": "failed"}
    return {f"p{q}": float(np.percentile(samples, q)) for q in (50, 99)}


def _prepare(job: LatencyJob, policy: Policy, obs: torch.Tensor, where: str) -> tuple[dict[str, list[Step]], list[str]]:
    """The runners that work, warm, and what is wrong with the others."""
    ready, notes = {}, []
    for name, runner in job.runners.items():
        try:
            step = runner.make(policy, obs)
            for _ in range(3):
                step()
            ready[name] = [step]
        except ModuleNotFoundError as error:
            notes.append(f"{runner.title}: {error.name} is not installed; {install('deploy')}")
        except Exception as error:
            notes.append(f"{where}, {runner.title}: {first_line(error)}")
    return ready, notes


def _rounds(job: LatencyJob, ready: Mapping[str, Sequence[Step]]) -> tuple[int, int]:
    """Turns, and calls a turn: enough calls for a p99, and turns long enough for a runner to have the caches itself."""
    if job.quick or not ready:
        return 2, 5
    slowest_ms = max(times[0] for times in take_turns(list(ready.values()), 1))
    calls = min(3000, max(300, int(4e3 / max(slowest_ms, 1e-3))))
    return calls // 50, 50


# -- threads and floors ------------------------------------------------------------------------------------------------


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _where(job: LatencyJob) -> str:
    return "one thread" if job.device == "cpu" else "GPU, float32"


def _explain(job: LatencyJob, rate: float) -> str:
    return (
        f"floor: the larger of the arithmetic at {rate / 1e9:,.0f} GFLOP/s, a large float32 product's, and of the "
        f"product of a matrix as large as the weights with a vector; both measured in this run, {_where(job)}"
    )


# -- how it is shown ---------------------------------------------------------------------------------------------------


def _columns(job: LatencyJob) -> list[Column]:
    return [
        Column("experiment", "experiment"),
        Column("variant", "variant"),
        Column("parameters", "parameters", "count"),
        Column("mflop", "MFLOP", "number"),
        *(
            Column(f"{name}_{q}", f"{runner.title} {q}", "number")
            for name, runner in job.runners.items()
            for q in ("p50", "p99")
        ),
        Column("arithmetic_ms", "arithmetic floor", "number"),
        Column("weights_ms", "weights floor", "number"),
        Column("over_floor", "best p50 / floor", "ratio"),
    ]


def _chart(job: LatencyJob, table: ResultTable) -> Chart:
    def values(key: str) -> list[float | None]:
        return [row[key] if isinstance(row[key], float) else None for row in table.rows]

    series = {f"{runner.title}, p50": values(f"{name}_p50") for name, runner in job.runners.items()}
    labels = [f"{row['experiment']} {row['variant']}" for row in table.rows]
    return Chart("One observation, one action", [Panel(table.title, labels, {**series, "floor": values("floor")})])
