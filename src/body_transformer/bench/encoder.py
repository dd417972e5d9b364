"""`bot bench encoder`: the whole encoder, the whole policy's step, and a whole imitation step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from .accuracy import find_errors
from .clocks import Step
from .encoder_peers import ENCODERS, POLICIES, TimedExperiment, TimedKind, chosen_kinds, load_timed
from .floors import BACKWARD, floor_ms, matmul_rate
from .harness import Bench, Contender
from .results import ResultColumn, ResultTable, Row
from .steps import ON_DEVICE, TimedModel, forward_steps, gradient_steps, optimizer_steps, what_ran

MakeSteps = Callable[[TimedModel, list[Tensor], str], list[Step]]
"""A model, sets of inputs and a precision -> the timed steps."""

BATCHES = {
    "cuda": {"ppo": 8192, "rollout": 2048, "imitation": 256, "errors": 1003},
    "cpu": {"ppo": 256, "rollout": 64, "imitation": 4, "errors": 101},
    "quick": {"ppo": 4, "rollout": 2, "imitation": 1, "errors": 3},
}
"""Batch sizes of a PPO minibatch, of a rollout's step, of an imitation minibatch and of the accuracy table.

The last one is not a multiple of any block size.
"""


def batch_of(bench: Bench, key: str) -> int:
    return BATCHES["quick" if bench.quick else bench.device][key]


def load(bench: Bench, experiment: str) -> TimedExperiment:
    return load_timed(experiment, bench.device, max_layers=2 if bench.quick else 99)


@dataclass(frozen=True)
class StepCase:
    """One table: implementations that take the same step on the same inputs."""

    key: str
    title: str
    timed: TimedExperiment
    kinds: Mapping[str, TimedKind]
    inputs: list[Tensor]
    make_steps: MakeSteps


def run(bench: Bench, rows: Sequence[str]) -> list[ResultTable]:
    """Time the cases of `rows`, and compare errors if `errors` is among them."""
    timed = [name for name in rows if name != ERRORS]
    size = 128 if bench.is_tiny else None
    rates = {
        precision: matmul_rate(bench.device, precision, bench.effort, size)
        for precision in (ON_DEVICE[bench.device] if timed else ())
    }
    if timed:
        written = ", ".join(f"{name} {rate / 1e12:.3g} TFLOP/s" for name, rate in rates.items())
        bench.notes.append(f"floor: the arithmetic alone, at a large matrix product's rate in this run ({written})")
    tables = []
    for name in rows:
        if name == ERRORS:
            experiment = load(bench, "humanoid-mod")
            tables.append(find_errors(bench, experiment, batch_of(bench, ERRORS), ON_DEVICE[bench.device]))
        else:
            tables += [time_case(bench, case, rates) for case in CASES[name](bench)]
    return tables


# -- cases -------------------------------------------------------------------------------------------------------------


def ppo_cases(bench: Bench) -> Iterator[StepCase]:
    """Yield the humanoid's encoder at the paper's PPO minibatch, and the forward pass of a rollout's step."""
    experiment = load(bench, "humanoid-mod")
    yield _encoder_case(bench, experiment, "ppo", "humanoid", "forward+backward", gradient_steps)
    yield _encoder_case(bench, experiment, "rollout", "humanoid", "forward", forward_steps)


def imitation_cases(bench: Bench) -> Iterator[StepCase]:
    """Yield one whole AdamW step of MoCapAct's encoder."""
    experiment = load(bench, "mocapact")

    def steps(model: TimedModel, inputs: list[Tensor], precision: str) -> list[Step]:
        targets = experiment.draw(len(inputs[0]), len(inputs), seed=2)
        return optimizer_steps(model, inputs, targets, precision, torch.optim.AdamW)

    yield _encoder_case(bench, experiment, "imitation", "MoCapAct", "forward+backward+AdamW", steps)


def _encoder_case(
    bench: Bench, experiment: TimedExperiment, key: str, body: str, step: str, make_steps: MakeSteps
) -> StepCase:
    batch = batch_of(bench, key)
    token_bytes = 4 * batch * experiment.layout.graph.num_nodes * experiment.config.embed_dim
    inputs = experiment.draw(batch, bench.num_sets(2 * token_bytes), seed=1)
    return StepCase(key, f"{body} encoder, batch {batch}, {step}", experiment, ENCODERS, inputs, make_steps)


def policy_cases(bench: Bench) -> Iterator[StepCase]:
    """Yield the humanoid's whole policy at the paper's PPO minibatch, from the normalizer to fused Adam."""
    experiment, batch = load(bench, "humanoid-mod"), batch_of(bench, "ppo")
    layout = experiment.layout
    generator = torch.Generator(device=bench.device).manual_seed(1)

    def draw(width: int) -> list[Tensor]:
        count = min(4, bench.num_sets(4 * batch * layout.obs_dim))
        return [torch.randn(batch, width, generator=generator, device=bench.device) for _ in range(count)]

    obs, targets = draw(layout.obs_dim), draw(layout.action_dim)

    def steps(model: TimedModel, inputs: list[Tensor], precision: str) -> list[Step]:
        return optimizer_steps(model, inputs, targets, precision, torch.optim.Adam)

    title = f"humanoid-mod policy, batch {batch}, forward+backward+Adam"
    yield StepCase("policy", title, experiment, POLICIES, obs, steps)


CASES: Mapping[str, Callable[[Bench], Iterator[StepCase]]] = {
    "ppo": ppo_cases,
    "policy": policy_cases,
    "imitation": imitation_cases,
}
"""Name on the command line -> its cases; all have compiled peers."""
ERRORS = "errors"
"""The row that reports the accuracy of the humanoid's encoder."""
ROWS = (*CASES, ERRORS)


# -- timing ------------------------------------------------------------------------------------------------------------

COLUMNS = (
    ResultColumn("title", "contender"),
    ResultColumn("precision", "precision"),
    ResultColumn("ms", "ms", "number"),
    ResultColumn("over_ours", "time / ours", "ratio"),
    ResultColumn("floor", "floor, ms", "number"),
    ResultColumn("over_floor", "time / floor", "ratio"),
    ResultColumn("peak_mib", "peak, MiB", "number"),
    ResultColumn("timed", "timed"),
    ResultColumn("ran", "ours ran"),
)
SERIES: Mapping[str, Callable[[Row], Any]] = {
    "peers": lambda row: None if row["contender"] == "ours" else row["ms"],
    "ours": lambda row: row["ms"] if row["contender"] == "ours" else None,
    "floor": itemgetter("floor"),
}


def time_case(bench: Bench, case: StepCase, rates: Mapping[str, float]) -> ResultTable:
    """Time all kinds in all precisions; this package's rows also name the operators that ran.

    `rates` are those of a large matrix product: precision -> operations per second.
    """
    kinds, ran = chosen_kinds(case.kinds, bench), dict[str, str]()

    def build(name: str, precision: str) -> list[Step]:
        model = kinds[name].make(case.timed)
        if name == "ours":
            ran[precision] = what_ran(forward_steps(model, case.inputs[:1], precision)[0])
        return case.make_steps(model, case.inputs, precision)

    entrants = entrants_of(kinds, bench.device)
    contenders = [Contender(f"{name} {precision}", partial(build, name, precision)) for name, precision in entrants]
    timings = bench.time(case.title, contenders)
    samples = len(case.inputs[0]) * (1 if case.make_steps is forward_steps else BACKWARD)
    rows: list[dict[str, Any]] = []
    for name, precision in entrants:
        timing, ours = timings[f"{name} {precision}"], timings[f"ours {precision}"].ms
        floor = floor_ms(samples * kinds[name].flops(case.timed), rates[precision])
        rows.append(
            {
                "contender": name,
                "title": kinds[name].title,
                "precision": precision,
                "ran": ran.get(precision) if name == "ours" else None,
                "ms": timing.shown,
                "floor": floor,
                "over_floor": timing.ms / floor if timing.ms else None,
                "peak_mib": timing.peak_mib,
                "timed": timing.method,
                "over_ours": timing.ms / ours if timing.ms and ours else None,
            }
        )
    return ResultTable(case.key, case.title, COLUMNS, rows, "{title}, {precision}", SERIES)


def entrants_of(kinds: Mapping[str, TimedKind], device: str) -> list[tuple[str, str]]:
    """Return (kind, precision) pairs, one per row; the fastest precision comes first."""
    precisions = ON_DEVICE[device]
    return [
        (name, one) for name, kind in kinds.items() for one in (precisions[:1] if kind.fastest_only else precisions)
    ]
