"""`bot bench WHAT`: speed compared with peers and with the hardware's floor."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich import box
from rich.progress import Progress
from rich.table import Table

from ..bench.results import BenchReport, ResultTable, describe, output_folder
from ..console import SafeConsole
from ..errors import unknown
from ..experiment import SUFFIXES, experiment_names
from ..model.variants import VARIANTS
from .bench_options import (
    AttentionOptions,
    EncoderOptions,
    LatencyOptions,
    OutputOptions,
    PaperOptions,
    PeerOptions,
    PpoOptions,
    TimedOptions,
)
from .output import console, print_json
from .run_options import no_gpu

if TYPE_CHECKING:
    from ..bench.harness import Bench


def main(args: list[str]) -> None:
    """Run one benchmark; exit with status 2, as `bot` does, if its name is missing or unknown."""
    if not args or args[0] in ("-h", "--help"):
        console().print(usage())
        if not args:
            sys.exit(2)
        return
    what, *rest = args
    if what not in BENCHMARKS:
        print(f"bot bench: {unknown('benchmark', what, BENCHMARKS)}", file=sys.stderr)
        sys.exit(2)
    _, kind, run = BENCHMARKS[what]
    run(tyro.cli(kind, prog=f"bot bench {what}", args=rest), args)


def usage() -> str:
    rows = "\n".join(f"  {what:<11}{text}" for what, (text, *_) in BENCHMARKS.items())
    return f"usage: bot bench WHAT ... (bot bench WHAT --help for details)\n\n{rows}"


# -- timed benchmarks --------------------------------------------------------------------------------------------------


def chosen(kind: str, given: Sequence[str], have: Iterable[str]) -> list[str]:
    """Return the given names without duplicates; all names if none is given."""
    have = list(have)
    for name in given:
        if name not in have:
            raise ValueError(unknown(kind, name, have))
    return list(dict.fromkeys(given)) or have


def attention(options: AttentionOptions, bench: Bench) -> list[ResultTable]:
    from ..bench.attention import DEFAULT_DTYPES, ON_DEVICE, SCALING, row_shapes, run

    shapes = row_shapes(bench.device, options.quick)
    rows = chosen("row", options.rows, [*shapes, SCALING])
    given = options.dtypes or DEFAULT_DTYPES[bench.device]
    dtypes = chosen(f"dtype on {bench.device}", given, ON_DEVICE[bench.device])
    compiled = [row for row in rows if row in shapes]  # scaling has no peers
    compile_ahead(
        options, bench, [["attention", "--rows", row, "--dtypes", dtype] for row in compiled for dtype in dtypes]
    )
    return run(bench, rows, dtypes)


def encoder(options: EncoderOptions, bench: Bench) -> list[ResultTable]:
    from ..bench.encoder import CASES, ROWS, run

    rows = chosen("row", options.rows, ROWS)
    compile_ahead(options, bench, [["encoder", "--rows", row] for row in rows if row in CASES])
    return run(bench, rows)


def compile_ahead(options: PeerOptions, bench: Bench, parts: Sequence[Sequence[str]]) -> None:
    """Compile peers in several processes if requested; each of `parts` is the arguments of one process."""
    if options.compile_workers and bench.compile_peers:
        from ..bench.harness import precompile

        precompile(bench, parts, options.compile_workers)


def latency(options: LatencyOptions, bench: Bench) -> list[ResultTable]:
    from ..bench.latency import ALL, QUICK_ROWS, run

    files = [row for row in options.rows if row.endswith(SUFFIXES)]
    known = [*experiment_names(), *files]
    rows = chosen("experiment", options.rows or (QUICK_ROWS if options.quick else ()), known)
    variants = {"favoured": (None,), "all": ALL} | {variant: (variant,) for variant in VARIANTS}
    if options.variant not in variants:
        raise ValueError(unknown("variant", options.variant, variants))
    return run(bench, rows, variants[options.variant])


def ppo(options: PpoOptions, bench: Bench) -> list[ResultTable]:
    from ..rl.registry import TASKS, need_mjlab

    need_mjlab()
    if options.task not in TASKS:
        raise ValueError(unknown("experiment", options.task, TASKS))
    if options.rounds < 1:
        raise ValueError(f"--rounds must be 1 or more; got {options.rounds}")
    from ..bench.ppo import ALL, run

    variants = chosen("variant", options.variants or ALL, VARIANTS)
    if bench.device == "cpu" and options.device is None and not options.quick:
        print(f"bot bench: {no_gpu('--device cpu')}; --quick takes tiny sizes", file=sys.stderr)
    num_envs = (4, 8) if options.quick else (2048, 4096, 8192) if bench.device == "cuda" else (64,)
    return run(bench, options.task, variants, num_envs, 1 if options.quick else options.rounds)


def bench_timed(run: Callable[[Any, Bench], list[ResultTable]], options: TimedOptions, args: Sequence[str]) -> None:
    """Run a benchmark and publish its results, unless peers were only compiled."""
    bench, folder = options.bench(), output_folder(options.out)
    tables = run(options, bench)
    if bench.compile_only:
        return
    from ..bench.chart import chart

    name = args[0]
    figures = {"chart.png": partial(chart, BENCHMARKS[name][0], tables)}
    notes = list(dict.fromkeys(bench.notes))
    publish(BenchReport(name, describe(bench.device, command_of(args)), tables, notes, figures), options, folder)


def command_of(args: Sequence[str]) -> str:
    return shlex.join(["bot", "bench", *args])


# -- the paper's analysis ----------------------------------------------------------------------------------------------

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def bench_paper(options: PaperOptions, args: Sequence[str]) -> None:
    threads = use_one_thread(args)
    settings, folder = options.settings(), output_folder(options.out)
    from ..bench.paper.compiled import compiler_version
    from ..bench.paper.record import UNFINISHED, Record
    from ..bench.paper.report import report

    own = {"threads": threads, "compiler": compiler_version()}
    record = Record(settings, describe("cpu", command_of(args)) | own)
    if folder and (taken := record.take_over(folder, options.overwrite)):
        print(f"resuming with the {taken} points of {folder / UNFINISHED}", file=sys.stderr)
    # refreshed between points: a refreshing thread would disturb the measurement
    with Progress(console=SafeConsole(stderr=True), transient=True, auto_refresh=False) as bar:
        for point in bar.track(record.missing(), description="points"):
            record.measure(point)
            if folder:
                record.save(folder)
    publish(report(record), options, folder)
    if folder:
        (folder / UNFINISHED).unlink(missing_ok=True)


def use_one_thread(args: Sequence[str]) -> str:
    """Limit every library to one thread, and return the number of threads in words.

    Libraries read the limit when they are loaded, so `bot bench …` replaces itself by a process that starts with it.
    Inside another program, the number of threads does not change.
    """
    one = dict.fromkeys(THREAD_VARIABLES, "1")
    is_limited = os.environ.items() >= one.items()
    if not is_limited and sys.argv[1:] == ["bench", *args]:
        program = [sys.executable, "-m", "body_transformer.cli.main", "bench", *args]
        os.execve(sys.executable, program, os.environ | one)
    return "1" if is_limited else "not limited"


BENCHMARKS: dict[str, tuple[str, Any, Callable[[Any, Sequence[str]], None]]] = {
    "attention": ("masked attention alone, over random bodies", AttentionOptions, partial(bench_timed, attention)),
    "encoder": (
        "the whole encoder, and whole steps of training with it",
        EncoderOptions,
        partial(bench_timed, encoder),
    ),
    "latency": ("one observation through each experiment's policy", LatencyOptions, partial(bench_timed, latency)),
    "ppo": ("environment steps per second, and an iteration of PPO", PpoOptions, partial(bench_timed, ppo)),
    "paper": ("the paper's computational analysis, rerun", PaperOptions, bench_paper),
}
"""Name -> line in the help, class of options, and function of the options and the arguments of `bot bench`."""


# -- output ------------------------------------------------------------------------------------------------------------


def publish(report: BenchReport, options: OutputOptions, folder: Path | None) -> None:
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
