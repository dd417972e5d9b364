"""`bot bench encoder`: the whole encoder, the whole policy's step, and a whole imitation step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from .accuracy import find_errors
from .chart import Chart, Panel
from .clocks import Step
from .encoder_peers import POLICY_TITLES, TimedExperiment, build_policy, config_of, encoder_kinds, load_timed
from .floors import BACKWARD, encoder_flops, floor_ms, matmul_rate, policy_flops
from .harness import BenchJob, Contender
from .results import ResultColumn, ResultTable
from .steps import ON_DEVICE, TimedModel, forward_steps, gradient_steps, optimizer_steps, what_ran

MakeSteps = Callable[[TimedModel, list[Tensor], str], list[Step]]
"""A model, sets of inputs and a precision -> the timed steps."""


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


@dataclass(frozen=True, kw_only=True)
class EncoderJob(BenchJob):
    """What `bot bench encoder` times."""

    rows: Sequence[str]
    """Keys of PARTS."""

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


def run(job: EncoderJob) -> tuple[list[ResultTable], Chart]:
    """Return the tables and the chart; note the floor and failures."""
    if any(name in COMPILED_PARTS for name in job.rows):
        rates = ", ".join(f"{name} {rate / 1e12:.3g} TFLOP/s" for name, rate in job.rates.items())
        job.notes.append(f"floor: the arithmetic alone, at the rate of a large product in this run ({rates})")
    tables = [table for name in job.rows for table in PARTS[name](job)]
    return tables, step_chart(tables)


# -- parts -------------------------------------------------------------------------------------------------------------


def time_ppo(job: EncoderJob) -> list[ResultTable]:
    """Time the humanoid's encoder at the paper's PPO minibatch, and the forward pass of a rollout's step."""
    timed, train, rollout = job.load("humanoid-mod"), job.sizes.train, job.sizes.rollout
    title = f"humanoid encoder, batch {train}, forward+backward"
    both = _time_encoders(job, timed, "ppo", title, train, gradient_steps)
    title = f"humanoid encoder, batch {rollout}, forward"
    return [both, _time_encoders(job, timed, "rollout", title, rollout, forward_steps)]


def time_imitation(job: EncoderJob) -> list[ResultTable]:
    """Time one whole AdamW step of MoCapAct's encoder."""
    timed, batch = job.load("mocapact"), job.sizes.imitation

    def steps(model: TimedModel, inputs: list[Tensor], precision: str) -> list[Step]:
        targets = timed.draw(batch, len(inputs), seed=2)
        return optimizer_steps(model, inputs, targets, precision, torch.optim.AdamW)

    title = f"MoCapAct encoder, batch {batch}, forward+backward+AdamW"
    return [_time_encoders(job, timed, "imitation", title, batch, steps)]


def time_policy(job: EncoderJob) -> list[ResultTable]:
    """Time the humanoid's whole policy at the paper's PPO minibatch, from the normalizer to fused Adam."""
    timed, batch = job.load("humanoid-mod"), job.sizes.train
    generator = torch.Generator(device=job.device).manual_seed(1)

    def draw(width: int) -> list[Tensor]:
        count = min(4, job.num_sets(4 * batch * timed.layout.obs_dim))
        return [torch.randn(batch, width, generator=generator, device=job.device) for _ in range(count)]

    obs, targets = draw(timed.layout.obs_dim), draw(timed.layout.action_dim)

    def steps(model: TimedModel, inputs: list[Tensor], precision: str) -> list[Step]:
        return optimizer_steps(model, inputs, targets, precision, torch.optim.Adam)

    entrants = [
        Entrant(
            name,
            POLICY_TITLES[name],
            precision,
            partial(build_policy, name, timed, job.device),
            BACKWARD * batch * policy_flops(timed.layout, config_of(name, timed.config)),
        )
        for name, precision in policy_entrants(job)
    ]
    title = f"humanoid-mod policy, batch {batch}, forward+backward+Adam"
    return [_time_entrants(job, "policy", title, entrants, obs, steps)]


def policy_entrants(job: EncoderJob) -> list[tuple[str, str]]:
    """Return (policy, precision) pairs. Compiling takes minutes, so it is done for the fastest arithmetic alone."""
    precisions = dict.fromkeys(POLICY_TITLES, job.precisions) | {"compiled": job.precisions[:1]}
    peers = [name for name in POLICY_TITLES if name != "ours" and (job.compile_peers or name != "compiled")]
    names = [*(peers if job.peers else []), "ours"]
    return [(name, precision) for name in names for precision in precisions[name]]


def report_errors(job: EncoderJob) -> list[ResultTable]:
    """Report the accuracy of the humanoid's encoder."""
    return [find_errors(job, job.load("humanoid-mod"), job.sizes.errors, job.precisions)]


PARTS: dict[str, Callable[[EncoderJob], list[ResultTable]]] = {
    "ppo": time_ppo,
    "policy": time_policy,
    "imitation": time_imitation,
    "errors": report_errors,
}
"""Parts by their name on the command line."""
COMPILED_PARTS = ("ppo", "policy", "imitation")
"""The timed parts, which have compiled peers."""


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


@dataclass(frozen=True)
class Entrant:
    """An encoder or a policy at one precision: one row of a table."""

    name: str
    """`ours`, or a peer's name."""
    title: str
    precision: str
    make: Callable[[], TimedModel]
    flops: int
    """Operations of one step."""


def _time_encoders(
    job: EncoderJob, timed: TimedExperiment, key: str, title: str, batch: int, make_steps: MakeSteps
) -> ResultTable:
    """Time every kind of encoder at every precision."""
    token_bytes = 4 * batch * timed.layout.graph.num_nodes * timed.config.embed_dim
    inputs = timed.draw(batch, job.num_sets(2 * token_bytes), seed=1)
    flops = (1 if make_steps is forward_steps else BACKWARD) * batch * encoder_flops(timed.layout.graph, timed.config)
    entrants = [
        Entrant(name, kind.title, precision, partial(kind.make, timed.encoder), flops)
        for name, kind in encoder_kinds(job.peers, job.compile_peers).items()
        for precision in job.precisions
    ]
    return _time_entrants(job, key, title, entrants, inputs, make_steps)


def _time_entrants(
    job: EncoderJob, key: str, title: str, entrants: Sequence[Entrant], inputs: list[Tensor], make_steps: MakeSteps
) -> ResultTable:
    """Time all entrants; for this package, each row names the operators that ran."""
    ran: dict[str, str] = {}

    def build(entrant: Entrant) -> list[Step]:
        model = entrant.make()
        if entrant.name == "ours":
            ran[entrant.precision] = what_ran(forward_steps(model, inputs[:1], entrant.precision)[0])
        return make_steps(model, inputs, entrant.precision)

    contenders = [Contender(f"{one.name} {one.precision}", partial(build, one)) for one in entrants]
    timings = job.time(title, contenders)
    rows: list[dict[str, Any]] = []
    for one in entrants:
        timing, ours = timings[f"{one.name} {one.precision}"], timings[f"ours {one.precision}"].ms
        floor = floor_ms(one.flops, job.rates[one.precision])
        rows.append(
            {
                "contender": one.name,
                "title": one.title,
                "precision": one.precision,
                "ran": ran.get(one.precision) if one.name == "ours" else None,
                "ms": timing.shown,
                "floor": floor,
                "over_floor": timing.ms / floor if timing.ms else None,
                "peak_mib": timing.peak_mib,
                "timed": timing.method,
                "over_ours": timing.ms / ours if timing.ms and ours else None,
            }
        )
    return ResultTable(key, title, STEP_COLUMNS, rows)


def step_chart(tables: Sequence[ResultTable]) -> Chart:
    """Return a chart with one panel per table of steps."""
    panels = []
    for table in tables:
        if table.columns is not STEP_COLUMNS:
            continue
        labels = [f"{row['title']}, {row['precision']}" for row in table.rows]
        times, is_ours = table.numbers("ms"), [row["contender"] == "ours" for row in table.rows]
        peers = [None if own else ms for ms, own in zip(times, is_ours, strict=True)]
        ours = [ms if own else None for ms, own in zip(times, is_ours, strict=True)]
        panels.append(Panel(table.title, labels, {"peers": peers, "ours": ours, "floor": table.numbers("floor")}))
    return Chart("The encoder: ours, its peers, the arithmetic's floor", panels)
