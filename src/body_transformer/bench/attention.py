"""`bot bench attention`: masked attention alone, over random bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from operator import itemgetter
from typing import Any

from torch import Tensor

from ..ops.body_attention import BACKENDS
from .accuracy import check
from .attention_peers import (
    DTYPES,
    OURS,
    Attention,
    AttentionKind,
    Inputs,
    Shape,
    attention_steps,
    chosen_backend,
    chosen_kinds,
    draw_inputs,
)
from .clocks import Step
from .floors import attention_bytes, copy_rate, floor_ms
from .harness import Bench, Contender, Timing
from .masks import tree_mask
from .results import ResultColumn, ResultTable

ON_DEVICE = {"cuda": ("bf16", "fp32", "tf32"), "cpu": ("fp32",)}
"""Dtypes that can be timed. A CPU has no tf32, and one without bf16 crashes in PyTorch's bf16 products."""
DEFAULT_DTYPES = {"cuda": ("bf16", "fp32"), "cpu": ("fp32",)}
SHAPES: Mapping[str, Sequence[Shape]] = {
    "cuda": ((8192, 2, 16, 32), (256, 5, 32, 64), (1024, 4, 128, 64), (128, 4, 1024, 64), (16, 4, 4096, 64)),
    "cpu": ((256, 2, 16, 32), (16, 5, 32, 64), (8, 4, 128, 64), (1, 4, 1024, 64)),
}
QUICK_SHAPES: Sequence[Shape] = ((4, 2, 16, 32), (2, 2, 24, 16))
PASSES = {False: "fwd", True: "fwd+bwd"}
"""Whether the backward pass is timed too -> name of the pass in the table."""
SCALING = "scaling"
"""Name of the row that times the cost per node for different numbers of nodes."""
SCALING_NODES = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
SCALING_TOKENS = {"cuda": 2**17, "cpu": 2**14}
QUICK_TOKENS = 256
HEADS, HEAD_DIM = 4, 64


def row_shapes(device: str, quick: bool) -> dict[str, Shape]:
    """Return row name -> shape: `8192x2x16x32`."""
    return {"x".join(map(str, shape)): shape for shape in (QUICK_SHAPES if quick else SHAPES[device])}


def run(bench: Bench, rows: Sequence[str], dtypes: Sequence[str]) -> list[ResultTable]:
    """Time `rows`, which are keys of row_shapes and `scaling`, in each of `dtypes`."""
    rate = copy_rate(bench.device, bench.effort, 2**22 if bench.is_tiny else None)
    bench.notes.append(f"floor: the bytes that must move, at {rate / 1e9:,.0f} GB/s, the rate of a copy in this run")
    shapes = [name for name in rows if name != SCALING]
    tables = [time_shapes(bench, shapes, dtypes, rate)] if shapes else []
    return [*tables, time_scaling(bench, dtypes, rate)] if SCALING in rows else tables


# -- rows of shapes ----------------------------------------------------------------------------------------------------


def time_shapes(bench: Bench, names: Sequence[str], dtypes: Sequence[str], rate: float) -> ResultTable:
    """Time all contenders on every shape; `rate` is the bytes per second of a copy."""
    kinds = chosen_kinds(bench.device, bench.peers, bench.compile_peers)
    shapes = row_shapes(bench.device, bench.quick)
    cases = [(name, dtype) for name in names for dtype in dtypes]
    rows = [row for name, dtype in cases for row in time_shape(bench, name, shapes[name], dtype, rate, kinds)]
    columns = (
        ResultColumn("row", "B x H x N x D"),
        ResultColumn("dtype", "dtype"),
        ResultColumn("pass", "pass"),
        *(ResultColumn(name, kind.title, "number") for name, kind in kinds.items()),
        ResultColumn("chosen", "ours is"),
        ResultColumn("floor", "floor", "number"),
        *([ResultColumn("speedup", "best masked peer / ours", "ratio")] if bench.peers else []),
        ResultColumn("over_floor", "ours / floor", "ratio"),
    )
    series = {
        "best masked peer": itemgetter("best_peer_ms"),
        "ours": itemgetter("ours"),
        "floor": itemgetter("floor"),
    }
    title = "attention over random bodies, ms"
    return ResultTable("attention", title, columns, rows, "{row} {dtype} {pass}", series)


def time_shape(
    bench: Bench,
    name: str,
    shape: Shape,
    dtype: str,
    rate: float,
    kinds: Mapping[str, AttentionKind],
    checked: bool = True,
) -> list[dict[str, Any]]:
    """Time all kinds on the same inputs, compared with float64 first if `checked`; return one row per pass."""
    mask = tree_mask(shape[2]).to(bench.device)
    num_bytes = {backward: attention_bytes(shape, DTYPES[dtype].dtype.itemsize, backward) for backward in PASSES}
    sets = draw_inputs(shape, dtype, bench.device, bench.num_sets(num_bytes[False]))
    kinds = {kind: one for kind, one in kinds.items() if supports(kind, shape, dtype)}
    timings = bench.time(f"{name} {dtype}", contenders_of(kinds, mask, sets, dtype, checked))
    about = {
        "row": name,
        **dict(zip(("batch", "heads", "nodes", "head_dim"), shape, strict=True)),
        "dtype": dtype,
        "num_ones": int(mask.sum()),
        "chosen": chosen_backend(sets[0], mask),
    }
    rows = []
    for backward, title in PASSES.items():
        own = {kind: timings[f"{kind} {title}"] for kind in kinds}
        floor = floor_ms(num_bytes[backward], rate)
        times = {kind: timing.shown for kind, timing in own.items()}
        rows.append({**about, "pass": title, **times, "floor": floor, **compare(kinds, own, floor)})
    return rows


def supports(kind: str, shape: Shape, dtype: str) -> bool:
    return kind not in BACKENDS or not BACKENDS[kind].refusal(DTYPES[dtype].dtype, *shape[2:])


def contenders_of(
    kinds: Mapping[str, AttentionKind], mask: Tensor, sets: Sequence[Inputs], dtype: str, checked: bool
) -> list[Contender]:
    """Return the contenders of both passes; those of one kind are a family, which is compiled and checked once."""

    @cache
    def ready(kind: str) -> Attention:
        attention = kinds[kind].make(mask)
        if checked and kinds[kind].is_masked:
            check(attention, mask, sets[0], dtype, kinds[kind].is_ours)
        return attention

    def build(kind: str, backward: bool) -> list[Step]:
        return attention_steps(ready(kind), sets, dtype, backward)

    return [
        Contender(f"{kind} {title}", partial(build, kind, backward), family=kind)
        for kind in kinds
        for backward, title in PASSES.items()
    ]


def compare(kinds: Mapping[str, AttentionKind], timings: Mapping[str, Timing], floor: float) -> dict[str, Any]:
    """Compare this package with the best masked peer and with the floor."""
    own = timings["ours"].ms
    times = {name: timings[name].ms for name, kind in kinds.items() if kind.is_masked and not kind.is_ours}
    best_ms, best = min(((ms, name) for name, ms in times.items() if ms is not None), default=(None, None))
    return {
        "best_peer": best,
        "best_peer_ms": best_ms,
        "speedup": best_ms / own if best_ms and own else None,
        "over_floor": own / floor if own else None,
    }


# -- cost per node -----------------------------------------------------------------------------------------------------

SCALING_COLUMNS = (
    ResultColumn("nodes", "nodes", "count"),
    ResultColumn("batch", "batch", "count"),
    ResultColumn("dtype", "dtype"),
    ResultColumn("chosen", "backend"),
    ResultColumn("forward_ns", "forward, ns per node", "number"),
    ResultColumn("forward_floor_ns", "floor", "number"),
    ResultColumn("both_ns", "forward+backward, ns per node", "number"),
    ResultColumn("both_floor_ns", "floor", "number"),
    ResultColumn("over_floor", "forward+backward / floor", "ratio"),
)
SCALING_SERIES = {
    "forward": itemgetter("forward_ns"),
    "forward+backward": itemgetter("both_ns"),
    "floor": itemgetter("both_floor_ns"),
}


def time_scaling(bench: Bench, dtypes: Sequence[str], rate: float) -> ResultTable:
    """Time this package alone at a constant number of tokens, where the cost per node should not depend on the body."""
    tokens = QUICK_TOKENS if bench.quick else SCALING_TOKENS[bench.device]
    sizes = [nodes for nodes in SCALING_NODES if nodes <= tokens]
    rows = [_time_body(bench, nodes, tokens, dtype, rate) for dtype in dtypes for nodes in sizes]
    title = f"cost per node, ours alone: {tokens:,} nodes in all, {HEADS} heads of {HEAD_DIM}"
    return ResultTable(SCALING, title, SCALING_COLUMNS, rows, "{nodes} nodes {dtype}", SCALING_SERIES, "ns per node")


def _time_body(bench: Bench, nodes: int, tokens: int, dtype: str, rate: float) -> dict[str, Any]:
    shape = (tokens // nodes, HEADS, nodes, HEAD_DIM)
    # unchecked: for the largest bodies the reference needs more memory than there is
    passes = time_shape(bench, f"{SCALING} {nodes} nodes", shape, dtype, rate, {"ours": OURS}, checked=False)
    row: dict[str, Any] = {"nodes": nodes, "batch": shape[0], "dtype": dtype, "chosen": passes[0]["chosen"]}
    for name, timed in zip(("forward", "both"), passes, strict=True):
        row[f"{name}_ns"] = timed["ours"] if timed["ours"] == "failed" else 1e6 * timed["ours"] / tokens
        row[f"{name}_floor_ns"] = 1e6 * timed["floor"] / tokens
    return row | {"over_floor": passes[1]["over_floor"]}
