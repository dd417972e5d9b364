"""`bot bench attention`: masked attention alone, over random bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

from torch import Tensor

from .attention_job import (
    DTYPES,
    SCALING,
    AttentionJob,
    Inputs,
    Make,
    Shape,
    attention_steps,
    backends_on,
    check,
    chosen_backend,
    draw_inputs,
    ours,
    row_shapes,
    shape_name,
    takes,
)
from .attention_peers import PEERS, Attention, peer_names
from .attention_scaling import time_scaling
from .bodies import tree_mask
from .chart import Chart, Panel
from .floors import attention_bytes, copy_rate, floor_ms
from .measure import Contender, Outcome, Say, complaints, measure
from .results import Column, ResultTable
from .timing import Step

PASSES = {False: "fwd", True: "fwd+bwd"}
"""Backward too? -> what the table calls it."""


def run(job: AttentionJob, say: Say) -> tuple[list[ResultTable], list[str], Chart]:
    """The tables, what went wrong, and the chart."""
    rate = copy_rate(job.device, job.effort, 2**22 if job.quick or job.compile_only else None)
    notes = [f"floor: bytes that must move, at the {rate / 1e9:,.0f} GB/s of a copy in this run"]
    shapes = row_shapes(job.device, job.quick)
    rows = []
    for name in [name for name in job.rows if name != SCALING]:
        for dtype in job.dtypes:
            found, wrong = time_shape(job, shapes[name], dtype, rate, say)
            rows += found
            notes += wrong
    tables = [ResultTable("attention", "attention over random bodies, ms", _columns(job), rows)] if rows else []
    if SCALING in job.rows:
        table, wrong = time_scaling(job, rate, say)
        tables.append(table)
        notes += wrong
    return tables, notes, _chart(tables)


def time_shape(
    job: AttentionJob, shape: Shape, dtype: str, rate: float, say: Say
) -> tuple[list[dict[str, Any]], list[str]]:
    """Everyone on the same inputs, a row a pass, and the notes of those that failed."""
    where = f"{shape_name(shape)} {dtype}"
    mask = tree_mask(shape[2]).to(job.device)
    num_bytes = {backward: attention_bytes(shape, DTYPES[dtype].dtype.itemsize, backward) for backward in PASSES}
    counts = {backward: job.num_sets(num_bytes[backward]) for backward in PASSES}
    sets = draw_inputs(shape, dtype, job.device, max(counts.values()))
    entrants = {name: make for name, make in _entrants(job).items() if _takes_part(job, name, shape, dtype)}
    checked = cache(lambda name: _checked(name, entrants[name](mask), mask, sets[0], dtype))

    def build(name: str, backward: bool) -> list[Step]:
        return attention_steps(checked(name), sets[: counts[backward]], dtype, backward)

    # one family: compiled and checked once, used for both passes
    contenders = [
        Contender(f"{name} {PASSES[backward]}", partial(build, name, backward), family=name)
        for name in entrants
        for backward in PASSES
    ]
    outcomes = measure(contenders, job.device, job.effort, lambda name: say(f"{where}: {name}"))
    about = {
        "row": shape_name(shape),
        **dict(zip(("batch", "heads", "nodes", "head_dim"), shape, strict=True)),
        "dtype": dtype,
        "num_ones": int(mask.sum()),
        "chosen": chosen_backend(sets[0], mask),
    }
    rows = [
        about | _row_of(backward, {name: outcomes[f"{name} {PASSES[backward]}"] for name in entrants}, floor)
        for backward, floor in ((backward, floor_ms(num_bytes[backward], rate)) for backward in PASSES)
    ]
    return rows, complaints(where, outcomes)


def _row_of(backward: bool, outcomes: Mapping[str, Outcome], floor: float) -> dict[str, Any]:
    times = {name: outcome.shown for name, outcome in outcomes.items()}
    return {"pass": PASSES[backward], **times, "floor": floor, **compare(outcomes, floor)}


def compare(outcomes: Mapping[str, Outcome], floor: float) -> dict[str, Any]:
    """Ours against the best of the masked peers, and against the floor."""
    own = outcomes["ours"].ms
    times = {name: outcomes[name].ms for name, peer in PEERS.items() if peer.masked and name in outcomes}
    ranked = sorted((ms, name) for name, ms in times.items() if ms is not None)
    best_ms, best = ranked[0] if ranked else (None, None)
    return {
        "best_peer": best,
        "best_peer_ms": best_ms,
        "speedup": best_ms / own if best_ms and own else None,
        "over_floor": own / floor if own else None,
    }


def _entrants(job: AttentionJob) -> dict[str, Make]:
    """The peers, the backend that the table chooses, and each backend by itself."""
    peers = {name: PEERS[name].make for name in peer_names(job.compile_peers)} if job.peers else {}
    backends = {backend: partial(ours, backend=backend) for backend in backends_on(job.device)}
    return {**peers, "ours": ours, **backends}


def _takes_part(job: AttentionJob, name: str, shape: Shape, dtype: str) -> bool:
    return name not in backends_on(job.device) or takes(name, shape, dtype)


def _checked(name: str, attention: Attention, mask: Tensor, inputs: Inputs, dtype: str) -> Attention:
    if name not in PEERS or PEERS[name].masked:
        check(attention, mask, inputs, dtype, is_ours=name not in PEERS)
    return attention


# -- how it is shown ---------------------------------------------------------------------------------------------------


def _columns(job: AttentionJob) -> list[Column]:
    titles = {name: PEERS[name].title if name in PEERS else name for name in _entrants(job)}
    return [
        Column("row", "B x H x N x D"),
        Column("dtype", "dtype"),
        Column("pass", "pass"),
        *(Column(name, title, "number") for name, title in titles.items()),
        Column("chosen", "ours is"),
        Column("floor", "floor", "number"),
        *([Column("speedup", "best masked peer / ours", "ratio")] if job.peers else []),
        Column("over_floor", "ours / floor", "ratio"),
    ]


SERIES = {
    "attention": {"best masked peer": "best_peer_ms", "ours": "ours", "floor": "floor"},
    SCALING: {"forward": "forward_ns", "forward+backward": "both_ns", "floor": "both_floor_ns"},
}
"""Table -> what its panel shows."""
UNITS = {"attention": "ms", SCALING: "ns a node"}


def _chart(tables: Sequence[ResultTable]) -> Chart:
    panels = []
    for table in tables:
        series = {name: [_number(row[key]) for row in table.rows] for name, key in SERIES[table.key].items()}
        shown = {name: values for name, values in series.items() if any(values)}
        panels.append(Panel(table.title, [_label(row) for row in table.rows], shown, UNITS[table.key]))
    return Chart("Attention over a body's mask", panels)


def _label(row: Mapping[str, Any]) -> str:
    return f"{row['row']} {row['dtype']} {row['pass']}" if "row" in row else f"{row['nodes']} nodes {row['dtype']}"


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
