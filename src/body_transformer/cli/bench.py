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

from ..bench.folder import output_folder
from ..errors import unknown
from ..experiment import experiment_names
from ..model.variants import VARIANTS
from .output import console, print_json
from .run_options import no_gpu

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
    out: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for results.json, table.md and chart.png."""


@dataclass
class _WithPeers(_Options):
    no_peers: Flag = False
    """Time ours alone."""
    compile: Flag = False
    """Compiled peers on the CPU too, where they need a C++ compiler; on a GPU they always take part."""
    compile_workers: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """First compile the peers, so many processes at once; the timed run then finds them in PyTorch's cache on disk."""
    compile_only: Flag = False
    """Compile the peers and time nothing."""

    def compiles_on(self, device: str) -> bool:
        return self.compile or device == "cuda"

    def precompile(self, device: str, jobs: Sequence[Sequence[str]]) -> None:
        """`jobs`: the arguments that name one part of this benchmark each."""
        if self.compile_workers < 0:
            raise ValueError(f"--compile-workers {self.compile_workers} is less than 0")
        if self.compile_workers and self.compiles_on(device) and not self.no_peers:
            from ..bench.precompile import precompile

            same = ["--device", device, *(["--quick"] if self.quick else []), *(["--compile"] if self.compile else [])]
            precompile([[*job, *same] for job in jobs], self.compile_workers, Progress())


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


@dataclass
class Ppo(_Options):
    """Reinforcement learning: environment steps a second, an iteration of PPO, and where its time goes."""

    task: Annotated[str, tyro.conf.arg(metavar="EXPERIMENT")] = "humanoid-mod"
    """Which environment: humanoid-mod, humanoid-hill or humanoid-board."""
    variants: Annotated[tuple[str, ...], tyro.conf.arg(metavar="VARIANT …")] = ()
    """Which architectures; mlp, transformer, bot-hard and bot-mix without this."""
    rounds: int = 15
    """Iterations of each that are timed."""


def main(args: list[str]) -> None:
    """Leaves with status 2, as `bot` itself does, if no benchmark is named or none of that name exists."""
    if not args or args[0] in ("-h", "--help"):
        console().print(usage())
        if not args:
            sys.exit(2)
        return
    what, *rest = args
    if what not in BENCHMARKS:
        print(f"bot bench: {unknown('benchmark', what, BENCHMARKS)}", file=sys.stderr)
        sys.exit(2)
    BENCHMARKS[what][1](rest)


def usage() -> str:
    rows = "\n".join(f"  {what:<11}{text}" for what, (text, _) in BENCHMARKS.items())
    return f"usage: bot bench WHAT ... (bot bench WHAT --help says more)\n\n{rows}"


# -- the benchmarks ----------------------------------------------------------------------------------------------------


def bench_attention(args: list[str]) -> None:
    options = tyro.cli(Attention, prog="bot bench attention", args=args)
    device, folder = find_device(options.device), output_folder(options.out)
    from ..bench.attention import run
    from ..bench.attention_job import DEFAULT_DTYPES, DTYPES, SCALING, AttentionJob, row_shapes

    job = AttentionJob(
        device,
        chosen("row", options.rows, [*row_shapes(device, options.quick), SCALING]),
        chosen("dtype", options.dtypes, DTYPES) if options.dtypes else DEFAULT_DTYPES[device],
        not options.no_peers,
        options.compiles_on(device),
        options.quick,
        options.compile_only,
    )
    shapes = [row for row in job.rows if row != SCALING]  # which has no peers
    options.precompile(device, [["attention", "--rows", row, "--dtypes", d] for row in shapes for d in job.dtypes])
    finish("attention", options, device, folder, args, run(job, Progress()))


def bench_encoder(args: list[str]) -> None:
    options = tyro.cli(Encoder, prog="bot bench encoder", args=args)
    device, folder = find_device(options.device), output_folder(options.out)
    from ..bench.encoder import COMPILED_PARTS, PARTS, run
    from ..bench.encoder_job import EncoderJob

    rows, compiles = chosen("row", options.rows, PARTS), options.compiles_on(device)
    job = EncoderJob(device, rows, not options.no_peers, compiles, options.quick, options.compile_only)
    options.precompile(device, [["encoder", "--rows", row] for row in rows if row in COMPILED_PARTS])
    finish("encoder", options, device, folder, args, run(job, Progress()))


def bench_latency(args: list[str]) -> None:
    options = tyro.cli(Latency, prog="bot bench latency", args=args)
    device, folder = find_device(options.device), output_folder(options.out)
    from ..bench.latency import ALL, FAVOURED, QUICK_ROWS, LatencyJob, run

    rows = chosen("experiment", options.rows or (QUICK_ROWS if options.quick else ()), experiment_names())

    variants = {FAVOURED: (FAVOURED,), "all": ALL} | {variant: (variant,) for variant in VARIANTS}
    if options.variant not in variants:
        raise ValueError(unknown("variant", options.variant, variants))
    job = LatencyJob(device, rows, variants[options.variant], options.quick)
    finish("latency", options, device, folder, args, run(job, Progress()))


def bench_ppo(args: list[str]) -> None:
    options = tyro.cli(Ppo, prog="bot bench ppo", args=args)
    device, folder = find_device(options.device), output_folder(options.out)
    from ..rl.registry import TASKS, need_mjlab

    need_mjlab()
    if options.task not in TASKS:
        raise ValueError(unknown("experiment", options.task, TASKS))
    if options.rounds < 1:
        raise ValueError(f"--rounds must be 1 or more; got {options.rounds}")
    from ..bench.ppo import ALL, PpoJob, run

    variants = chosen("variant", options.variants, VARIANTS) if options.variants else list(ALL)
    if device == "cpu" and options.device is None and not options.quick:
        print(f"bot bench: {no_gpu('--device cpu')}; --quick takes tiny sizes", file=sys.stderr)
    num_envs = (4, 8) if options.quick else (2048, 4096, 8192) if device == "cuda" else (64,)
    job = PpoJob(device, options.task, variants, num_envs, 1 if options.quick else options.rounds, options.quick)
    finish("ppo", options, device, folder, args, run(job, Progress()))


def bench_paper(args: list[str]) -> None:
    from . import bench_paper as paper

    paper.main(args)


BENCHMARKS: dict[str, tuple[str, Callable[[list[str]], None]]] = {
    "attention": ("masked attention alone, over random bodies", bench_attention),
    "encoder": ("the whole encoder, and whole steps of training with it", bench_encoder),
    "latency": ("one observation through each experiment's policy", bench_latency),
    "ppo": ("environment steps a second, and an iteration of PPO", bench_ppo),
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


def finish(
    name: str, options: _Options, device: str, folder: Path | None, args: Sequence[str], findings: Findings
) -> None:
    """Prints what was found, and writes it if a folder was named."""
    if isinstance(options, _WithPeers) and options.compile_only:
        return  # nothing was timed
    from ..bench.environment import describe
    from ..bench.results import Report, write_report

    tables, notes, chart = findings
    report = Report(name, describe(device, " ".join(["bot bench", name, *args])), tables, notes, chart)
    if options.json:
        print_json(report.to_dict())
    else:
        show(report)
    if folder:
        for path in write_report(report, folder):
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
