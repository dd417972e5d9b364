"""`bot bench WHAT`: how fast it is, beside its peers and the hardware's floor."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich import box
from rich.table import Table

from ..body.messages import unknown
from ..config import experiment_names
from ..model.variants import VARIANTS
from .output import console, print_json

if TYPE_CHECKING:
    from ..bench.chart import Chart
    from ..bench.results import Report, ResultTable

    Findings = tuple[list[ResultTable], list[str], Chart]

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
Rows = Annotated[tuple[str, ...], tyro.conf.arg(metavar="ROW")]
DEVICES = ("cpu", "cuda")


@dataclass
class _Options:
    """What every benchmark takes."""

    device: Annotated[str | None, tyro.conf.arg(metavar="cpu|cuda")] = None
    """Where to run: the GPU if there is one, unless said otherwise."""
    quick: Flag = False
    """Tiny sizes and few samples: to see that it runs, not how fast."""
    json: Flag = False
    """Print one JSON object instead of tables."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for results.json, table.md and chart.png."""


@dataclass
class _WithPeers(_Options):
    no_peers: Flag = False
    """Time ours alone."""
    compile: Flag = False
    """Compiled peers on the CPU too, where they need a C++ compiler; on a GPU they always take part."""


@dataclass
class Attention(_WithPeers):
    """Masked attention alone, over random bodies."""

    rows: Rows = ()
    """Which rows: shapes such as 8192x2x16x32, and scaling (the cost a node); all of them without this."""
    dtypes: Annotated[tuple[str, ...], tyro.conf.arg(metavar="DTYPE")] = ()
    """bf16, fp32, tf32; the first two on a GPU and fp32 on a CPU without this."""


@dataclass
class Encoder(_WithPeers):
    """The whole encoder, the whole policy's step, a whole imitation step, and how exact the encoder is."""

    rows: Rows = ()
    """Which parts: ppo, policy, imitation, errors; all of them without this."""


@dataclass
class Latency(_Options):
    """One observation through each experiment's policy: p50 and p99, one thread."""

    rows: Rows = ()
    """Which experiments; all of them without this."""
    variant: Annotated[str, tyro.conf.arg(metavar="VARIANT|favoured|all")] = "favoured"
    """The architecture: a variant, the one that each experiment favours, or mlp, transformer and bot-hard in turn."""


def main(args: list[str]) -> None:
    if not args or args[0] in ("-h", "--help"):
        console().print(usage())
        return
    what, *rest = args
    if what not in BENCHMARKS:
        raise ValueError(unknown("benchmark", what, BENCHMARKS))
    BENCHMARKS[what][1](rest)


def usage() -> str:
    rows = "\n".join(f"  {what:<11}{text}" for what, (text, _) in BENCHMARKS.items())
    return f"usage: bot bench WHAT ... (bot bench WHAT --help says more)\n\n{rows}"


# -- the benchmarks ----------------------------------------------------------------------------------------------------


def bench_attention(args: list[str]) -> None:
    options = tyro.cli(Attention, prog="bot bench attention", args=args)
    device = find_device(options.device)
    from ..bench.attention import run
    from ..bench.attention_job import DEFAULT_DTYPES, DTYPES, SCALING, AttentionJob, row_shapes

    job = AttentionJob(
        device,
        chosen("row", options.rows, [*row_shapes(device, options.quick), SCALING]),
        chosen("dtype", options.dtypes, DTYPES) if options.dtypes else DEFAULT_DTYPES[device],
        not options.no_peers,
        options.compile or device == "cuda",
        options.quick,
    )
    finish("attention", options, device, args, run(job, Progress()))


def bench_encoder(args: list[str]) -> None:
    options = tyro.cli(Encoder, prog="bot bench encoder", args=args)
    device = find_device(options.device)
    from ..bench.encoder import PARTS, run
    from ..bench.encoder_job import EncoderJob

    rows = chosen("row", options.rows, PARTS)
    job = EncoderJob(device, rows, not options.no_peers, options.compile or device == "cuda", options.quick)
    finish("encoder", options, device, args, run(job, Progress()))


def bench_latency(args: list[str]) -> None:
    options = tyro.cli(Latency, prog="bot bench latency", args=args)
    device = find_device(options.device)
    from ..bench.latency import ALL, FAVOURED, QUICK_ROWS, LatencyJob, run

    rows = chosen("experiment", options.rows or (QUICK_ROWS if options.quick else ()), experiment_names())

    variants = {FAVOURED: (FAVOURED,), "all": ALL} | {variant: (variant,) for variant in VARIANTS}
    if options.variant not in variants:
        raise ValueError(unknown("variant", options.variant, variants))
    job = LatencyJob(device, rows, variants[options.variant], options.quick)
    finish("latency", options, device, args, run(job, Progress()))


def bench_paper(args: list[str]) -> None:
    from . import bench_paper as paper

    paper.main(args)


BENCHMARKS: dict[str, tuple[str, Callable[[list[str]], None]]] = {
    "attention": ("masked attention alone, over random bodies", bench_attention),
    "encoder": ("the whole encoder, and whole steps of training with it", bench_encoder),
    "latency": ("one observation through each experiment's policy", bench_latency),
    "paper": ("the paper's computational analysis, rerun", bench_paper),
}


# -- options -----------------------------------------------------------------------------------------------------------


def find_device(given: str | None) -> str:
    if given is not None and given not in DEVICES:
        raise ValueError(unknown("device", given, DEVICES))
    import torch

    if given == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: PyTorch finds no GPU here; --device cpu runs anywhere")
    return given or ("cuda" if torch.cuda.is_available() else "cpu")


def chosen(kind: str, given: Sequence[str], have: Iterable[str]) -> list[str]:
    """What was given, once each; all there is if nothing was."""
    have = list(have)
    for name in given:
        if name not in have:
            raise ValueError(unknown(kind, name, have))
    return list(dict.fromkeys(given)) or have


# -- what is said ------------------------------------------------------------------------------------------------------


class Progress:
    """Lines on standard error, with the seconds since the start: a benchmark of peers that compile takes minutes."""

    def __init__(self) -> None:
        self.start = time.perf_counter()

    def __call__(self, line: str) -> None:
        print(f"[{time.perf_counter() - self.start:4.0f} s] {line}", file=sys.stderr, flush=True)


def finish(name: str, options: _Options, device: str, args: Sequence[str], findings: Findings) -> None:
    """Prints what was found, and writes it if a folder was named."""
    from ..bench.environment import describe
    from ..bench.results import Report, write_report

    tables, notes, chart = findings
    report = Report(name, describe(device, " ".join(["bot bench", name, *args])), tables, notes, chart)
    if options.json:
        print_json(report.to_dict())
    else:
        show(report)
    if options.out:
        for path in write_report(report, options.out):
            print(f"wrote {path}", file=sys.stderr if options.json else sys.stdout)


def show(report: Report) -> None:
    out = console()
    out.print(" · ".join(f"{key} {value}" for key, value in report.environment.items()))
    for table in report.tables:
        out.print()
        out.print(as_rich(table))
    for note in report.notes:
        out.print(note)


def as_rich(table: ResultTable) -> Table:
    shown = Table(title=table.title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    for column in table.columns:
        shown.add_column(column.title, justify="left" if column.form == "text" else "right")
    for row in table.cells():
        shown.add_row(*row)
    return shown
