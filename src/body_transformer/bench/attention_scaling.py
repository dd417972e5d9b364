"""What ours costs a node, at a constant number of tokens: it should not depend on how many nodes a body has."""

from __future__ import annotations

from functools import partial
from typing import Any

from .attention_job import (
    DTYPES,
    SCALING,
    AttentionJob,
    attention_steps,
    chosen_backend,
    draw_inputs,
    ours,
)
from .bodies import tree_mask
from .floors import attention_bytes, floor_ms
from .measure import Contender, Say, complaints, measure
from .results import Column, ResultTable

NODES = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
TOKENS = {"cuda": 2**17, "cpu": 2**14}
QUICK_TOKENS = 256
HEADS, HEAD_DIM = 4, 64
COLUMNS = (
    Column("nodes", "nodes", "count"),
    Column("batch", "batch", "count"),
    Column("dtype", "dtype"),
    Column("chosen", "backend"),
    Column("forward_ns", "forward, ns a node", "number"),
    Column("forward_floor_ns", "floor", "number"),
    Column("both_ns", "forward+backward, ns a node", "number"),
    Column("both_floor_ns", "floor", "number"),
    Column("over_floor", "forward+backward / floor", "ratio"),
)
PASSES = {"forward": False, "both": True}
"""What the keys of a row begin with -> backward too?"""


def time_scaling(job: AttentionJob, rate: float, say: Say) -> tuple[ResultTable, list[str]]:
    """Ours alone: how it grows is the question here, and the rows of shapes have the peers. `rate` is a copy's."""
    rows, notes = [], []
    tokens = QUICK_TOKENS if job.quick else TOKENS[job.device]
    for dtype in job.dtypes:
        for nodes in [count for count in NODES if count <= tokens]:
            row, wrong = _time_row(job, nodes, tokens, dtype, rate, say)
            rows.append(row)
            notes += wrong
    title = f"cost a node, ours alone: {tokens:,} nodes in all, {HEADS} heads of {HEAD_DIM}"
    return ResultTable(SCALING, title, COLUMNS, rows), notes


def _time_row(
    job: AttentionJob, nodes: int, tokens: int, dtype: str, rate: float, say: Say
) -> tuple[dict[str, Any], list[str]]:
    mask = tree_mask(nodes).to(job.device)
    shape = (tokens // nodes, HEADS, nodes, HEAD_DIM)
    sets = draw_inputs(shape, dtype, job.device, 1)  # larger than any cache
    where = f"{SCALING} {nodes} nodes {dtype}"
    contenders = [
        Contender(name, partial(attention_steps, ours(mask), sets, dtype, backward))
        for name, backward in PASSES.items()
    ]
    outcomes = measure(contenders, job.device, job.effort, lambda name: say(f"{where}: {name}"))
    row: dict[str, Any] = {
        "nodes": nodes,
        "batch": tokens // nodes,
        "dtype": dtype,
        "chosen": chosen_backend(sets[0], mask),
    }
    for name, backward in PASSES.items():
        ms = outcomes[name].ms
        floor = floor_ms(attention_bytes(shape, DTYPES[dtype].dtype.itemsize, backward), rate)
        row[f"{name}_ns"] = "failed" if ms is None else 1e6 * ms / tokens
        row[f"{name}_floor_ns"] = 1e6 * floor / tokens
        row["over_floor"] = ms / floor if ms else None  # of the last pass, forward+backward
    return row, complaints(where, outcomes)
