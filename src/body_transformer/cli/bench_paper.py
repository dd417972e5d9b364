"""`bot bench paper`: the paper's computational analysis, rerun."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ..analysis import worker
from ..analysis.compiled import compiler_version
from ..analysis.contenders import CONTENDERS
from ..analysis.record import UNFINISHED, Record
from ..analysis.sweeps import QUICK, Settings
from ..bench.environment import describe
from ..bench.folder import output_folder
from ..files import atomic_write
from .output import console, print_json


@dataclass
class Paper:
    """Masked attention for one sample and one head on one CPU thread, as in the paper's Section 5.4 and appendix.

    Vanilla NumPy, the paper's masked NumPy, ours in NumPy and in C, and PyTorch, over sequence lengths, sparsities and
    real bodies: runtime and FLOPs. The full setting took seven minutes on two shared cores (2.3 GHz), --quick takes
    some fifteen seconds. With --out it can be stopped at any time: the same command goes on where it was.
    """

    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """A few draws of everything, for a first look and for CI."""
    draws: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Random inputs and masks a sequence length; 10000 in the full setting."""
    masks: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Random masks a number of nodes, spread over the sparsities; 50000 in the full setting."""
    body_draws: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Random inputs a real body; 1000 in the full setting."""
    head_dim: int = Settings.head_dim
    """Width of the head, which the paper does not give: 64 in its imitation policies, 32 in its RL ones."""
    dtype: Literal["float32", "float64"] = "float32"
    """Arithmetic; the longest sequence is measured in both."""
    exp_flops: int = Settings.exp_flops
    """What one exponential counts for (the appendix's c2, which the paper does not give)."""
    seed: int = Settings.seed
    """Of inputs and masks."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object instead of a table."""
    out: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for results.json, table.md and the figures."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Discard what a stopped run with other settings left in --out; without this it is refused."""

    def settings(self) -> Settings:
        names = ("draws", "masks", "body_draws", "head_dim", "dtype", "exp_flops", "seed")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return replace(QUICK if self.quick else Settings(), **given)


def main(args: list[str]) -> None:
    options = tyro.cli(Paper, prog="bot bench paper", args=args)
    command = shlex.join(["bot", "bench", "paper", *args])
    settings, folder = options.settings(), output_folder(options.out)
    environment = {**describe("cpu", command), "threads": "1", "compiler": compiler_version()}
    record = Record(settings, environment)
    if folder and (taken := record.take_over(folder, options.overwrite)):
        print(f"going on with the {taken} points of {folder / UNFINISHED}", file=sys.stderr)
    fill(record, folder)
    written = list(write(record, folder)) if folder else []
    if options.json:
        print_json(record.to_dict())
    else:
        show(record)
    for path in written:
        print(f"wrote {path}", file=sys.stderr if options.json else sys.stdout)


def fill(record: Record, folder: Path | None) -> None:
    """Measure what is missing; after each point all is saved in `folder`."""
    done = {point["key"] for point in record.points}
    left = [point for point in record.settings.points() if point.key not in done]
    with progress_bar() as bar, closing(worker.run(record.settings, done)) as messages:
        task = bar.add_task(left[0].key if left else "", total=sum(point.draws for point in left))
        upcoming = iter([*(point.key for point in left[1:]), "done"])
        for message in messages:
            bar.advance(task, message.get("drawn", 0))
            if "point" in message:
                record.points.append(message["point"])
                bar.update(task, description=next(upcoming))
                if folder:
                    record.save(folder)


def progress_bar() -> Progress:
    columns = (TextColumn("{task.description:<36}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def write(record: Record, folder: Path) -> Iterator[Path]:
    from ..analysis.figures import draw_all

    yield record.save(folder)
    rows = "".join(f"| {' | '.join(row)} |\n" for row in [TITLES, ["---"] * len(TITLES), *rows_of(record)])
    where = "".join(f"- {name}: {value}\n" for name, value in record.environment.items())
    text = f"# bot bench paper\n\n{where}\n{rows}\n" + "".join(f"- {note}\n" for note in notes(record))
    yield atomic_write(folder / "table.md", text)
    yield from draw_all(record, folder)


TITLES = ["mask", "dtype", "nodes", "ones", "sparsity", *(one.label for one in CONTENDERS.values())]
TITLES += ["best of ours", "FLOPs: paper", "FLOPs: ours"]


def rows_of(record: Record) -> list[list[str]]:
    """One row a point: median runtimes, how much faster the best of ours is than vanilla, and how many FLOPs fewer."""
    return [row_of(point) for point in record.points]


def row_of(point: dict[str, Any]) -> list[str]:
    name = point["name"] if point["sweep"] == "body" else "random"
    sizes = [f"{point['nodes']:,}", f"{point['ones']:,}", f"{point['sparsity']:.4f}"]
    times = [f"{point['median_us'][name]:,.1f}" if name in point["median_us"] else "-" for name in CONTENDERS]
    best = max(point["speedup"][name] for name in point["speedup"] if CONTENDERS[name].is_ours)
    fewer = [f"{point['flops']['vanilla'] / point['flops'][name]:.2f}x" for name in ("paper", "ours")]
    return [name, point["dtype"], *sizes, *times, f"{best:.2f}x", *fewer]


def notes(record: Record) -> list[str]:
    """What the table does not say by itself."""
    found = record.to_dict()
    lines = [
        f"{row['nodes']} nodes, sparsity {row['sparsity']:.3f}, {row['dtype']}: {CONTENDERS[row['best']].label} is "
        f"{row['speedup']:.1f} times faster than vanilla NumPy (medians; {row['speedup_of_means']:.1f} by means)"
        for row in found["headline"]
    ]
    for size, crossings in found["break_even_sparsity"].items():
        parts = [f"{CONTENDERS[name].label} {wording(sparsity)}" for name, sparsity in crossings.items()]
        lines.append(f"{size}, faster than vanilla NumPy: {', '.join(parts)}")
    for row in found["flop_counts"]:
        agree = "as counted" if row["formula"] == row["counted"] else f"but {row['counted']:,} counted"
        more = f"a program executes {row['executed_over_formula']:.1%} more: {'; '.join(row['reasons'])}"
        lines.append(
            f"FLOPs, {row['algorithm']} at {row['nodes']} nodes: {row['formula']:,} by the formula, {agree}; {more}"
        )
    return lines


def wording(sparsity: float | None) -> str:
    if sparsity is None:
        return "nowhere"
    return f"from sparsity {sparsity:.2f} on" if sparsity else "everywhere"


def show(record: Record) -> None:
    table = Table(
        title="median runtimes on one thread, µs; x: so many times faster, or fewer FLOPs, than vanilla",
        title_justify="left",
    )
    for index, title in enumerate(TITLES):
        table.add_column(title, justify="right" if index > 1 else "left", no_wrap=index == 0)
    previous = None
    for point, row in zip(record.points, rows_of(record), strict=True):
        if previous not in (None, point["sweep"]):
            table.add_section()
        previous = point["sweep"]
        table.add_row(*row)
    out = console()
    out.print(table)
    for note in notes(record):
        out.print(note)
