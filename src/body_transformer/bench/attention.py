"""`bot bench attention`: masked attention alone, over random bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
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
from .attention_peers import PEERS, peer_names
from .attention_scaling import time_scaling
from .bodies import tree_mask
from .chart import Chart, Panel
from .floors import attention_bytes, copy_rate, floor_ms
from .measure import Contender, Outcome, Say, complaints, measure
from .results import Column, ResultTable
from .timing import Step, num_sets

PASSES = {False: "fwd", True: "fwd+bwd"}
"""Backward too? -> what the table calls it."""


def run(job: AttentionJob, say: Say) -> tuple[list[ResultTable], list[str], Chart]:
    """The tables, what went wrong, and the chart."""
    rate = copy_rate(job.device, job.effort, 2**22 if job.quick else None)
    notes = [f"floor: bytes that must move, at the {rate / 1e9:,.0f} GB/s of a copy in this run"]
    shapes = row_shapes(job.device, job.quick)
    rows = []
    for name in [name for name in job.rows if name != SCALING]:
        for dtype in job.dtypes:
            for backward in PASSES:
                row, wrong = time_row(job, shapes[name], dtype, backward, rate, say)
                rows.append(row)
                notes += wrong
    tables = [ResultTable("attention", "attention over random bodies, ms", _columns(job), rows)] if rows else []
    if SCALING in job.rows:
        table, wrong = time_scaling(job, say)
        tables.append(table)
        notes += wrong
    return tables, notes, _chart(tables)


def time_row(
    job: AttentionJob, shape: Shape, dtype: str, backward: bool, rate: float, say: Say
) -> tuple[dict[str, Any], list[str]]:
    """Everyone on the same inputs, and the notes of those that failed."""
    where = f"{shape_name(shape)} {dtype} {PASSES[backward]}"
    mask = tree_mask(shape[2]).to(job.device)
    num_bytes = attention_bytes(shape, DTYPES[dtype].dtype.itemsize, backward)
    sets = draw_inputs(shape, dtype, job.device, 1 if job.quick else num_sets(num_bytes, job.device))
    contenders = [
        Contender(name, partial(_build, name, make, mask, sets, dtype, backward))
        for name, make in _entrants(job).items()
        if name not in backends_on(job.device) or takes(name, shape, dtype)
    ]
    outcomes = measure(contenders, job.device, job.effort, lambda name: say(f"{where}: {name}"))
    floor = floor_ms(num_bytes, rate)
    row = {
        "row": shape_name(shape),
        **dict(zip(("batch", "heads", "nodes", "head_dim"), shape, strict=True)),
        "dtype": dtype,
        "pass": PASSES[backward],
        "num_ones": int(mask.sum()),
        **{name: outcome.shown for name, outcome in outcomes.items()},
        "chosen": chosen_backend(sets[0], mask),
        "floor": floor,
        **compare(outcomes, floor),
    }
    return row, complaints(where, outcomes)


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


def _build(name: str, make: Make, mask: Tensor, sets: Sequence[Inputs], dtype: str, backward: bool) -> list[Step]:
    attention = make(mask)
    if name not in PEERS or PEERS[name].masked:
        check(attention, mask, sets[0], dtype)
    return attention_steps(attention, sets, dtype, backward)


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
    SCALING: {"forward": "forward_ns", "forward+backward": "both_ns"},
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
