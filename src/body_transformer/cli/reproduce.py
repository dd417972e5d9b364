"""`bot reproduce WHAT`: a table or figure of the paper; runs what is missing, then draws it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.table import Table

from .output import console, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..training.jobs import Planned

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


@dataclass
class Reproduce:
    """A table or figure of the paper. What stands behind `--` goes to every `bot train`, such as where the data are:
    `bot reproduce table1 -- --imitation.data /data/mocapact`."""

    what: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WHAT")]
    """table1, ablations, layers, scaling, adroit; rl, rl-random-mask or rl-shared-tokenizer."""
    seeds: int | None = None
    """Runs an arm; by default as many as the paper has."""
    only: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="NAME")] = ()
    """Run this part alone, an experiment, a label or both: humanoid-mod, bot-mix, humanoid-mod/bot-mix; may be given
    several times. After running it, all that is there is drawn; with --draw, this part."""
    jobs: int = 1
    """Runs at once."""
    keep_going: Flag = False
    """A run that fails does not stop the others."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/reproduce")
    """Where runs and results go; studies share their runs."""
    list: Flag = False
    """Only say which runs it needs, and which are there."""
    draw: Flag = False
    """Run nothing: draw what is there."""
    json: Flag = False
    """Print one JSON object instead of tables."""


def main(args: list[str]) -> None:
    own, more = (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
    options = tyro.cli(Reproduce, prog="bot reproduce", args=own)
    from ..reproduce.study import load_study

    study = load_study(options.what)
    seeds = study.seeds if options.seeds is None else options.seeds
    if seeds < 1 or options.jobs < 1:
        raise ValueError(f"--seeds and --jobs must be 1 or more; got {seeds} and {options.jobs}")
    runs = study.runs(options.out, seeds, more, options.only)
    if options.list:
        states = {str(run.folder): run.state for run in runs}
        if options.json:
            print_json({"runs": states})
            return
        table = Table("run", "state", box=None, pad_edge=False)
        for folder, state in states.items():
            table.add_row(folder, state)
        console().print(table)
        return
    failure = None if options.draw else run_missing(runs, options)
    files = write(options, seeds)
    if options.json:
        print_json({"files": [str(file) for file in files], "finished": sum(run.is_finished for run in runs)})
    else:
        console().print(files[0].read_text(encoding="utf-8"))
        console().print("wrote " + ", ".join(str(file) for file in files))
    if failure:
        raise failure


def run_missing(runs: Sequence[Planned], options: Reproduce) -> ValueError | None:
    """With --keep-going, what failed is said after all else is done."""
    from ..training.jobs import run_all

    try:
        run_all(runs, options.jobs, keep_going=options.keep_going)
    except ValueError as error:
        if not options.keep_going:
            raise
        return error
    return None


def write(options: Reproduce, seeds: int) -> list[Path]:
    """The table, and the figure if it is one."""
    from ..files import atomic_write
    from ..reproduce import curves, draw
    from ..reproduce.study import load_study

    study = load_study(options.what)
    if options.draw and options.only:
        part = f"{study.title}: {', '.join(options.only)} alone"
        study = replace(study, title=part, arms=tuple(study.chosen(options.only)))
    of = curves if study.statistic == "curves" else draw
    table = atomic_write(options.out / f"{study.name}.md", of.as_markdown(study, options.out, seeds))
    if study.x is None and study.statistic != "curves":
        return [table]
    figure = options.out / f"{study.name}.png"
    return [table, atomic_write(figure, lambda file: of.draw_figure(study, file, options.out, seeds))]
