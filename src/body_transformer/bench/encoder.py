"""`bot bench encoder`: the whole encoder, the whole policy's step, and a whole imitation step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from .accuracy import find_errors
from .chart import Chart, Panel
from .clocks import Step
from .encoder_peers import (
    POLICY_TITLES,
    TimedExperiment,
    build_policy,
    config_of,
    encoder_kinds,
    load_timed,
)
from .floors import BACKWARD, floor_ms, matmul_rate, policy_flops
from .harness import BenchJob, Contender, Say, Timing, complaints, measure
from .results import ResultColumn, ResultTable
from .steps import (
    ON_DEVICE,
    TimedModel,
    forward_steps,
    gradient_steps,
    optimizer_steps,
    what_ran,
)

MakeSteps = Callable[[TimedModel, list[Tensor], str], list[Step]]
"""An encoder, sets of tokens and a precision -> the timed steps."""
Parts = tuple[list[ResultTable], list[str]]
"""Tables, and notes on failures."""


@dataclass(frozen=True)
class BatchSizes:
    """Batch sizes; smaller on a CPU and in a quick run."""

    train: int
    """Observations in a PPO minibatch."""
    rollout: int
    """Observations in a step of all environments."""
    imitation: int
    """Samples in an imitation minibatch."""
    errors: int
    """Samples of the accuracy tables; not a multiple of any block."""
    max_layers: int = 99


SIZES = {"cuda": BatchSizes(8192, 2048, 256, 1003), "cpu": BatchSizes(256, 64, 4, 101)}
QUICK_SIZES = BatchSizes(4, 2, 1, 3, max_layers=2)


@dataclass(frozen=True)
class EncoderJob(BenchJob):
    """What `bot bench encoder` times."""

    rows: Sequence[str]
    """Keys of PARTS."""
    peers: bool
    compile_peers: bool

    @property
    def sizes(self) -> BatchSizes:
        return QUICK_SIZES if self.quick else SIZES[self.device]

    @property
    def precisions(self) -> Sequence[str]:
        return ON_DEVICE[self.device]

    @cached_property
    def rates(self) -> dict[str, float]:
        """Operations per second at each precision, measured once."""
        size = 128 if self.quick or self.compile_only else None
        return {precision: matmul_rate(self.device, precision, self.effort, size) for precision in self.precisions}

    def load(self, experiment: str) -> TimedExperiment:
        return load_timed(experiment, self.device, self.sizes.max_layers)


def run(job: EncoderJob, say: Say) -> tuple[list[ResultTable], list[str], Chart]:
    """Return the tables, notes on the floor and on failures, and the chart."""
    notes: list[str] = []
    if any(name in COMPILED_PARTS for name in job.rows):
        rates = ", ".join(f"{name} {rate / 1e12:.3g} TFLOP/s" for name, rate in job.rates.items())
        notes.append(f"floor: the arithmetic alone, at the rate of a large product in this run ({rates})")
    tables: list[ResultTable] = []
    for name in job.rows:
        found, wrong = PARTS[name](job, say)
        tables += found
        notes += wrong
    return tables, notes, step_chart(tables)


# -- the encoder -------------------------------------------------------------------------------------------------------


def time_ppo(job: EncoderJob, say: Say) -> Parts:
    """Time the humanoid's encoder at the paper's PPO minibatch, and the forward pass of a rollout's step."""
    timed, train, rollout = job.load("humanoid-mod"), job.sizes.train, job.sizes.rollout
    title = f"humanoid encoder, batch {train}, forward+backward"
    both, wrong = _time_encoders(job, timed, "ppo", title, train, BACKWARD, gradient_steps, say)
    title = f"humanoid encoder, batch {rollout}, forward"
    forward, also_wrong = _time_encoders(job, timed, "rollout", title, rollout, 1, forward_steps, say)
    return [both, forward], [*wrong, *also_wrong]


def time_imitation(job: EncoderJob, say: Say) -> Parts:
    """Time one whole AdamW step of MoCapAct's encoder."""
    timed, batch = job.load("mocapact"), job.sizes.imitation

    def steps(model: TimedModel, inputs: list[Tensor], precision: str) -> list[Step]:
        targets = timed.draw(batch, len(inputs), seed=2)
        return optimizer_steps(model, inputs, targets, precision, torch.optim.AdamW)

    title = f"MoCapAct encoder, batch {batch}, forward+backward+AdamW"
    table, notes = _time_encoders(job, timed, "imitation", title, batch, BACKWARD, steps, say)
    return [table], notes


def _time_encoders(
    job: EncoderJob,
    timed: TimedExperiment,
    key: str,
    title: str,
    batch: int,
    factor: int,
    make_steps: MakeSteps,
    say: Say,
) -> tuple[ResultTable, list[str]]:
    """Time every kind of encoder at every precision; `factor` is the arithmetic over that of a forward pass."""
    token_bytes = 4 * batch * timed.layout.graph.num_nodes * timed.config.embed_dim
    inputs = timed.draw(batch, job.num_sets(2 * token_bytes), seed=1)
    kinds = encoder_kinds(job.peers, job.compile_peers)
    ran: dict[str, str] = {}

    def build(name: str, precision: str) -> list[Step]:
        model = kinds[name].make(timed.weights, precision)
        if name == "ours":
            ran[precision] = what_ran(forward_steps(model, inputs[:1], precision)[0])
        return make_steps(model, inputs, precision)

    entrants = {(name, precision): kinds[name].title for name in kinds for precision in job.precisions}
    floors = dict.fromkeys(kinds, factor * batch * timed.flops())
    return _time_entrants(job, key, title, entrants, floors, build, ran, say)


def _time_entrants(
    job: EncoderJob,
    key: str,
    title: str,
    entrants: Mapping[tuple[str, str], str],
    flops: Mapping[str, int],
    build: Callable[[str, str], list[Step]],
    ran: Mapping[str, str],
    say: Say,
) -> tuple[ResultTable, list[str]]:
    """Time (name, precision) -> title; `ran` has this package's operators per precision, as `build` recorded them."""
    contenders = [Contender(f"{name} {precision}", partial(build, name, precision)) for name, precision in entrants]
    timings = measure(contenders, job.device, job.effort, lambda name: say(f"{title}: {name}"))
    rows = []
    for (name, precision), shown in entrants.items():
        floor = floor_ms(flops[name], job.rates[precision])
        own = ran.get(precision) if name == "ours" else None
        rows.append(step_row(name, shown, precision, timings[f"{name} {precision}"], floor, own))
    return step_table(key, title, rows), complaints(title, timings)


# -- the policy --------------------------------------------------------------------------------------------------------


def time_policy(job: EncoderJob, say: Say) -> Parts:
    """Time the humanoid's whole policy at the paper's PPO minibatch, from the normalizer to fused Adam."""
    timed = job.load("humanoid-mod")
    title = f"humanoid-mod policy, batch {job.sizes.train}, forward+backward+Adam"
    obs, targets = draw_data(job, timed)
    ran: dict[str, str] = {}

    def build(name: str, precision: str) -> list[Step]:
        model = build_policy(name, timed, job.device)
        if name == "ours":
            ran[precision] = what_ran(forward_steps(model, obs[:1], precision)[0])
        return optimizer_steps(model, obs, targets, precision, torch.optim.Adam)

    entrants = {one: POLICY_TITLES[one[0]] for one in policy_entrants(job)}
    flops = {
        name: BACKWARD * job.sizes.train * policy_flops(timed.layout, config_of(name, timed.config))
        for name in POLICY_TITLES
    }
    table, notes = _time_entrants(job, "policy", title, entrants, flops, build, ran, say)
    return [table], notes


def policy_entrants(job: EncoderJob) -> list[tuple[str, str]]:
    """Return (policy, precision) pairs. Compiling takes minutes, so it is done for the fastest arithmetic alone."""
    precisions = dict.fromkeys(POLICY_TITLES, job.precisions) | {"compiled": job.precisions[:1]}
    peers = [name for name in POLICY_TITLES if name != "ours" and (job.compile_peers or name != "compiled")]
    names = [*(peers if job.peers else []), "ours"]
    return [(name, precision) for name in names for precision in precisions[name]]


def draw_data(job: EncoderJob, timed: TimedExperiment) -> tuple[list[Tensor], list[Tensor]]:
    """Draw sets of observations and target actions."""
    batch, layout = job.sizes.train, timed.layout
    generator = torch.Generator(device=job.device).manual_seed(1)

    def draw(width: int) -> Tensor:
        return torch.randn(batch, width, generator=generator, device=job.device)

    count = min(4, job.num_sets(4 * batch * layout.obs_dim))
    return [draw(layout.obs_dim) for _ in range(count)], [draw(layout.action_dim) for _ in range(count)]


def report_errors(job: EncoderJob, say: Say) -> Parts:
    """Report the accuracy of the humanoid's encoder."""
    table, notes = find_errors(job.load("humanoid-mod"), job.sizes.errors, job.precisions, say)
    return [table], notes


# -- tables ------------------------------------------------------------------------------------------------------------


STEP_COLUMNS = (
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


def step_row(name: str, title: str, precision: str, timing: Timing, floor: float, ran: str | None) -> dict[str, Any]:
    """Return one contender's row; `ran` is the operator, backend and arithmetic that this package used."""
    return {
        "contender": name,
        "title": title,
        "precision": precision,
        "ran": ran,
        "ms": timing.shown,
        "floor": floor,
        "over_floor": timing.ms / floor if timing.ms else None,
        "peak_mib": timing.peak_mib,
        "timed": timing.method,
    }


def step_table(key: str, title: str, rows: Sequence[Mapping[str, Any]]) -> ResultTable:
    """Return the table, with each row's time over that of this package at the same precision."""
    ours = {row["precision"]: row["ms"] for row in rows if row["contender"] == "ours"}
    full = [{**row, "over_ours": _ratio(row["ms"], ours.get(row["precision"]))} for row in rows]
    return ResultTable(key, title, STEP_COLUMNS, full)


def _ratio(a: Any, b: Any) -> float | None:
    return a / b if isinstance(a, float) and isinstance(b, float) else None


def step_chart(tables: Sequence[ResultTable]) -> Chart:
    """Return a chart with one panel per table of steps."""
    panels = []
    for table in tables:
        if not table.rows or "ms" not in table.rows[0]:
            continue
        labels = [f"{row['title']}, {row['precision']}" for row in table.rows]
        times, is_ours = table.numbers("ms"), [row["contender"] == "ours" for row in table.rows]
        peers = [None if own else ms for ms, own in zip(times, is_ours, strict=True)]
        ours = [ms if own else None for ms, own in zip(times, is_ours, strict=True)]
        panels.append(Panel(table.title, labels, {"peers": peers, "ours": ours, "floor": table.numbers("floor")}))
    return Chart("The encoder: ours, its peers, the arithmetic's floor", panels)


PARTS: dict[str, Callable[[EncoderJob, Say], Parts]] = {
    "ppo": time_ppo,
    "policy": time_policy,
    "imitation": time_imitation,
    "errors": report_errors,
}
"""Parts by their name on the command line."""
COMPILED_PARTS = ("ppo", "policy", "imitation")
"""The timed parts, which have compiled peers."""
