"""`bot bench WHAT`: speed beside peers and the hardware's floor."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ..bench.results import BenchReport, ResultTable, describe, output_folder
from ..errors import unknown
from ..experiment import experiment_names
from ..model.variants import VARIANTS
from .bench_options import (
    AttentionOptions,
    EncoderOptions,
    LatencyOptions,
    OutputOptions,
    PaperOptions,
    PpoOptions,
    TimedOptions,
    find_device,
)
from .output import console, print_json
from .run_options import no_gpu

if TYPE_CHECKING:
    from ..bench.chart import Chart
    from ..bench.harness import BenchJob
    from ..bench.paper.record import Record

    Prepared = tuple[BenchJob, Callable[[Any], tuple[list[ResultTable], Chart]]]
    """A job, and the function that runs it."""


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
    _, kind, run = BENCHMARKS[what]
    run(tyro.cli(kind, prog=f"bot bench {what}", args=rest), shlex.join(["bot", "bench", *args]))


def usage() -> str:
    rows = "\n".join(f"  {what:<11}{text}" for what, (text, *_) in BENCHMARKS.items())
    return f"usage: bot bench WHAT ... (bot bench WHAT --help for details)\n\n{rows}"


# -- the benchmarks ----------------------------------------------------------------------------------------------------


def chosen(kind: str, given: Sequence[str], have: Iterable[str]) -> list[str]:
    """Return the given names without repetitions; all names if none is given."""
    have = list(have)
    for name in given:
        if name not in have:
            raise ValueError(unknown(kind, name, have))
    return list(dict.fromkeys(given)) or have


def attention_job(options: AttentionOptions) -> Prepared:
    from ..bench.attention import DEFAULT_DTYPES, SCALING, AttentionJob, row_shapes, run
    from ..bench.attention_peers import DTYPES

    settings = options.job_settings()
    device = settings["device"]
    rows = chosen("row", options.rows, [*row_shapes(device, options.quick), SCALING])
    dtypes = chosen("dtype", options.dtypes, DTYPES) if options.dtypes else DEFAULT_DTYPES[device]
    job = AttentionJob(rows=rows, dtypes=dtypes, **settings)
    shapes = [row for row in rows if row != SCALING]  # scaling has no peers
    options.precompile(job, [["attention", "--rows", row, "--dtypes", dtype] for row in shapes for dtype in dtypes])
    return job, run


def encoder_job(options: EncoderOptions) -> Prepared:
    from ..bench.encoder import COMPILED_PARTS, PARTS, EncoderJob, run

    job = EncoderJob(rows=chosen("row", options.rows, PARTS), **options.job_settings())
    options.precompile(job, [["encoder", "--rows", row] for row in job.rows if row in COMPILED_PARTS])
    return job, run


def latency_job(options: LatencyOptions) -> Prepared:
    from ..bench.latency import ALL, FAVOURED, QUICK_ROWS, LatencyJob, run

    rows = chosen("experiment", options.rows or (QUICK_ROWS if options.quick else ()), experiment_names())
    variants = {FAVOURED: (FAVOURED,), "all": ALL} | {variant: (variant,) for variant in VARIANTS}
    if options.variant not in variants:
        raise ValueError(unknown("variant", options.variant, variants))
    return LatencyJob(rows=rows, variants=variants[options.variant], **options.job_settings()), run


def ppo_job(options: PpoOptions) -> Prepared:
    from ..rl.registry import TASKS, need_mjlab

    need_mjlab()
    if options.task not in TASKS:
        raise ValueError(unknown("experiment", options.task, TASKS))
    if options.rounds < 1:
        raise ValueError(f"--rounds must be 1 or more; got {options.rounds}")
    from ..bench.ppo import ALL, PpoJob, run

    settings = options.job_settings()
    variants = chosen("variant", options.variants, VARIANTS) if options.variants else ALL
    if settings["device"] == "cpu" and options.device is None and not options.quick:
        print(f"bot bench: {no_gpu('--device cpu')}; --quick takes tiny sizes", file=sys.stderr)
    num_envs = (4, 8) if options.quick else (2048, 4096, 8192) if settings["device"] == "cuda" else (64,)
    rounds = 1 if options.quick else options.rounds
    return PpoJob(task=options.task, variants=variants, num_envs=num_envs, rounds=rounds, **settings), run


def bench_timed(prepare: Callable[[Any], Prepared], options: TimedOptions, command: str) -> None:
    """Run a benchmark and publish its results, unless peers were only compiled."""
    find_device(options.device)
    folder = output_folder(options.out)
    job, run = prepare(options)
    tables, chart = run(job)
    if job.compile_only:
        return
    from ..bench.chart import draw

    notes, figures = list(dict.fromkeys(job.notes)), {"chart.png": partial(draw, chart)}
    publish(BenchReport(command.split()[2], describe(job.device, command), tables, notes, figures), options, folder)


def bench_paper(options: PaperOptions, command: str) -> None:
    settings, folder = options.settings(), output_folder(options.out)
    from ..bench.paper.compiled import compiler_version
    from ..bench.paper.record import UNFINISHED, Record
    from ..bench.paper.report import report

    record = Record(settings, describe("cpu", command) | {"threads": "1", "compiler": compiler_version()})
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


BENCHMARKS: dict[str, tuple[str, Any, Callable[[Any, str], None]]] = {
    "attention": ("masked attention alone, over random bodies", AttentionOptions, partial(bench_timed, attention_job)),
    "encoder": (
        "the whole encoder, and whole steps of training with it",
        EncoderOptions,
        partial(bench_timed, encoder_job),
    ),
    "latency": ("one observation through each experiment's policy", LatencyOptions, partial(bench_timed, latency_job)),
    "ppo": ("environment steps per second, and an iteration of PPO", PpoOptions, partial(bench_timed, ppo_job)),
    "paper": ("the paper's computational analysis, rerun", PaperOptions, bench_paper),
}
"""Name -> its line in the help, its options, and the function that takes them and the command."""


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
