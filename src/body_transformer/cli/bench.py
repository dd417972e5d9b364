"""`bot bench WHAT`: speed beside peers and the hardware's floor."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ..bench.results import BenchReport, ResultTable, describe, output_folder
from ..errors import unknown
from ..experiment import experiment_names
from ..model.variants import VARIANTS
from .output import console, print_json
from .run_options import Flag, no_gpu

if TYPE_CHECKING:
    from ..bench.chart import Chart
    from ..bench.paper.record import Record
    from ..bench.paper.sweeps import PaperSettings

    Findings = tuple[list[ResultTable], list[str], Chart]

Rows = Annotated[tuple[str, ...], tyro.conf.arg(metavar="ROW")]
DEVICES = ("cpu", "cuda")


def main(args: list[str]) -> None:
    """Run one benchmark; exit with status 2, as `bot` does, if none is named or the name is unknown."""
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
    return f"usage: bot bench WHAT ... (bot bench WHAT --help for details)\n\n{rows}"


# -- options -----------------------------------------------------------------------------------------------------------


@dataclass
class _OutputOptions:
    json: Flag = False
    """Print one JSON object instead of tables."""
    out: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for results.json, table.md and the figures."""


@dataclass
class _Options(_OutputOptions):
    device: Annotated[str | None, tyro.conf.arg(metavar="cpu|cuda")] = None
    """Device to run on; by default the GPU if there is one."""
    quick: Flag = False
    """Tiny sizes and few samples: shows that it runs, not how fast."""


@dataclass
class _PeerOptions(_Options):
    no_peers: Flag = False
    """Time this package alone."""
    compile: Flag = False
    """Compiled peers on the CPU too, where they need a C++ compiler; on a GPU they always take part."""
    compile_workers: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Compile the peers first, in this many processes; the timed run then finds them in PyTorch's cache on disk."""
    compile_only: Flag = False
    """Compile the peers and time nothing."""

    def compiles_on(self, device: str) -> bool:
        return self.compile or device == "cuda"

    def precompile(self, device: str, jobs: Sequence[Sequence[str]]) -> None:
        """Compile ahead; `jobs` are the arguments that name one part of this benchmark each."""
        if self.compile_workers < 0:
            raise ValueError(f"--compile-workers {self.compile_workers} is less than 0")
        if self.compile_workers and self.compiles_on(device) and not self.no_peers:
            from ..bench.harness import precompile

            same = ["--device", device, *(["--quick"] if self.quick else []), *(["--compile"] if self.compile else [])]
            precompile([[*job, *same] for job in jobs], self.compile_workers, ProgressLines())


@dataclass
class AttentionOptions(_PeerOptions):
    """Masked attention alone, over random bodies."""

    rows: Rows = ()
    """Rows to time: shapes such as 8192x2x16x32, and scaling (the cost per node); all of them by default."""
    dtypes: Annotated[tuple[str, ...], tyro.conf.arg(metavar="DTYPE")] = ()
    """bf16, fp32, tf32; by default the first two on a GPU and fp32 on a CPU."""


@dataclass
class EncoderOptions(_PeerOptions):
    """The whole encoder, the whole policy's step, a whole imitation step, and the encoder's accuracy."""

    rows: Rows = ()
    """Parts to run: ppo, policy, imitation, errors; all of them by default."""


@dataclass
class LatencyOptions(_Options):
    """One observation through each experiment's policy: p50 and p99, one thread."""

    rows: Rows = ()
    """Experiments; all of them by default."""
    variant: Annotated[str, tyro.conf.arg(metavar="VARIANT|favoured|all")] = "favoured"
    """The architecture: a variant, each experiment's favoured one, or mlp, transformer and bot-hard in turn."""


@dataclass
class PpoOptions(_Options):
    """Reinforcement learning: environment steps per second, an iteration of PPO, and where its time goes."""

    task: Annotated[str, tyro.conf.arg(metavar="EXPERIMENT")] = "humanoid-mod"
    """Environment: humanoid-mod, humanoid-hill or humanoid-board."""
    variants: Annotated[tuple[str, ...], tyro.conf.arg(metavar="VARIANT …")] = ()
    """Architectures; by default mlp, transformer, bot-hard and bot-mix."""
    rounds: int = 15
    """Timed iterations of each architecture."""


@dataclass
class PaperOptions(_OutputOptions):
    """Masked attention for one sample and one head on one CPU thread, as in the paper's Section 5.4 and appendix.

    Vanilla NumPy, the paper's masked NumPy, ours in NumPy and in C, and PyTorch, over sequence lengths, sparsities and
    real bodies: runtime and FLOPs. The full setting took seven minutes on two shared cores (2.3 GHz), --quick takes
    some fifteen seconds. With --out it can be stopped at any time; the same command resumes it.
    """

    quick: Flag = False
    """A few draws of every part, for a first look and for CI."""
    draws: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Random inputs and masks per sequence length; 10000 in the full setting."""
    masks: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Random masks per number of nodes, spread over the sparsities; 50000 in the full setting."""
    body_draws: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Random inputs per real body; 1000 in the full setting."""
    head_dim: int = 64
    """Width of the head, which the paper does not give: 64 in its imitation policies, 32 in its RL ones."""
    dtype: Literal["float32", "float64"] = "float32"
    """Arithmetic; the longest sequence is measured in both."""
    exp_flops: int = 1
    """Operations of one exponential (the appendix's c2, which the paper does not give)."""
    seed: int = 0
    """Seed of inputs and masks."""
    overwrite: Flag = False
    """Discard the points that a stopped run with other settings left in --out; without this flag it is refused."""

    def settings(self) -> PaperSettings:
        from ..bench.paper.sweeps import QUICK, PaperSettings

        names = ("draws", "masks", "body_draws", "head_dim", "dtype", "exp_flops", "seed")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return replace(QUICK if self.quick else PaperSettings(), **given)


def find_device(given: str | None) -> str:
    """Return the device that is asked for; by default the GPU if there is one."""
    if given is not None and given not in DEVICES:
        raise ValueError(unknown("device", given, DEVICES))
    import torch

    if given == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: PyTorch finds no GPU here; --device cpu runs anywhere")
    return given or ("cuda" if torch.cuda.is_available() else "cpu")


def chosen(kind: str, given: Sequence[str], have: Iterable[str]) -> list[str]:
    """Return the given names without repetitions; all names if none is given."""
    have = list(have)
    for name in given:
        if name not in have:
            raise ValueError(unknown(kind, name, have))
    return list(dict.fromkeys(given)) or have


# -- the benchmarks ----------------------------------------------------------------------------------------------------


def bench_attention(args: list[str]) -> None:
    options = tyro.cli(AttentionOptions, prog="bot bench attention", args=args)
    device, folder = find_device(options.device), output_folder(options.out)
    from ..bench.attention import DEFAULT_DTYPES, SCALING, AttentionJob, row_shapes, run
    from ..bench.attention_peers import DTYPES

    job = AttentionJob(
        device,
        chosen("row", options.rows, [*row_shapes(device, options.quick), SCALING]),
        chosen("dtype", options.dtypes, DTYPES) if options.dtypes else DEFAULT_DTYPES[device],
        not options.no_peers,
        options.compiles_on(device),
        quick=options.quick,
        compile_only=options.compile_only,
    )
    shapes = [row for row in job.rows if row != SCALING]  # scaling has no peers
    options.precompile(device, [["attention", "--rows", row, "--dtypes", d] for row in shapes for d in job.dtypes])
    finish("attention", options, device, folder, args, run(job, ProgressLines()))


def bench_encoder(args: list[str]) -> None:
    options = tyro.cli(EncoderOptions, prog="bot bench encoder", args=args)
    device, folder = find_device(options.device), output_folder(options.out)
    from ..bench.encoder import COMPILED_PARTS, PARTS, EncoderJob, run

    rows, compiles = chosen("row", options.rows, PARTS), options.compiles_on(device)
    job = EncoderJob(
        device, rows, not options.no_peers, compiles, quick=options.quick, compile_only=options.compile_only
    )
    options.precompile(device, [["encoder", "--rows", row] for row in rows if row in COMPILED_PARTS])
    finish("encoder", options, device, folder, args, run(job, ProgressLines()))


def bench_latency(args: list[str]) -> None:
    options = tyro.cli(LatencyOptions, prog="bot bench latency", args=args)
    device, folder = find_device(options.device), output_folder(options.out)
    from ..bench.latency import ALL, FAVOURED, QUICK_ROWS, LatencyJob, run

    rows = chosen("experiment", options.rows or (QUICK_ROWS if options.quick else ()), experiment_names())
    variants = {FAVOURED: (FAVOURED,), "all": ALL} | {variant: (variant,) for variant in VARIANTS}
    if options.variant not in variants:
        raise ValueError(unknown("variant", options.variant, variants))
    job = LatencyJob(device, rows, variants[options.variant], quick=options.quick)
    finish("latency", options, device, folder, args, run(job, ProgressLines()))


def bench_ppo(args: list[str]) -> None:
    options = tyro.cli(PpoOptions, prog="bot bench ppo", args=args)
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
    job = PpoJob(device, options.task, variants, num_envs, 1 if options.quick else options.rounds, quick=options.quick)
    finish("ppo", options, device, folder, args, run(job, ProgressLines()))


def bench_paper(args: list[str]) -> None:
    options = tyro.cli(PaperOptions, prog="bot bench paper", args=args)
    settings, folder = options.settings(), output_folder(options.out)
    from ..bench.paper.compiled import compiler_version
    from ..bench.paper.record import UNFINISHED, Record
    from ..bench.paper.report import report

    environment = describe("cpu", shlex.join(["bot", "bench", "paper", *args]))
    record = Record(settings, environment | {"threads": "1", "compiler": compiler_version()})
    if folder and (taken := record.take_over(folder, options.overwrite)):
        print(f"resuming with the {taken} points of {folder / UNFINISHED}", file=sys.stderr)
    fill(record, folder)
    publish(report(record), options, folder)
    if folder:
        (folder / UNFINISHED).unlink(missing_ok=True)


def fill(record: Record, folder: Path | None) -> None:
    """Measure the missing points; after each one, all are saved in `folder`."""
    from ..bench.paper import worker

    done = {point["key"] for point in record.points}
    left = [point for point in record.settings.points() if point.key not in done]
    columns = (TextColumn("{task.description:<36}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    with bar, closing(worker.run(record.settings, done)) as messages:
        task = bar.add_task(left[0].key if left else "", total=sum(point.draws for point in left))
        upcoming = iter([*(point.key for point in left[1:]), "done"])
        for message in messages:
            bar.advance(task, message.get("drawn", 0))
            if "point" in message:
                record.points.append(message["point"])
                bar.update(task, description=next(upcoming))
                if folder:
                    record.save(folder)


BENCHMARKS: dict[str, tuple[str, Callable[[list[str]], None]]] = {
    "attention": ("masked attention alone, over random bodies", bench_attention),
    "encoder": ("the whole encoder, and whole steps of training with it", bench_encoder),
    "latency": ("one observation through each experiment's policy", bench_latency),
    "ppo": ("environment steps per second, and an iteration of PPO", bench_ppo),
    "paper": ("the paper's computational analysis, rerun", bench_paper),
}


# -- output ------------------------------------------------------------------------------------------------------------


class ProgressLines:
    """Lines on standard error, with the seconds since the start: compiling peers takes minutes."""

    def __init__(self) -> None:
        self.start = time.perf_counter()

    def __call__(self, line: str) -> None:
        print(f"[{time.perf_counter() - self.start:4.0f} s] {line}", file=sys.stderr, flush=True)


def finish(
    name: str, options: _Options, device: str, folder: Path | None, args: Sequence[str], findings: Findings
) -> None:
    """Publish the findings, unless peers were only compiled."""
    if isinstance(options, _PeerOptions) and options.compile_only:
        return  # nothing was timed
    from ..bench.chart import draw

    tables, notes, chart = findings
    environment = describe(device, " ".join(["bot bench", name, *args]))
    publish(BenchReport(name, environment, tables, notes, {"chart.png": partial(draw, chart)}), options, folder)


def publish(report: BenchReport, options: _OutputOptions, folder: Path | None) -> None:
    """Write the report if a folder is given, then print it."""
    written = report.write(folder) if folder else []
    if options.json:
        print_json(report.to_dict())
    else:
        show(report)
    for path in written:
        print(f"wrote {path}", file=sys.stderr if options.json else sys.stdout)


def show(report: BenchReport) -> None:
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
        is_text = column.form in ("text", "label")
        shown.add_column(column.title, justify="left" if is_text else "right", no_wrap=column.form == "label")
    for row in table.cells():
        shown.add_row(*row)
    return shown
