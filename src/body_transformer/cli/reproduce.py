"""`bot reproduce WHAT`: run the missing trainings of a table or figure of the paper, then draw it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.table import Table

from .output import console, print_json
from .run_options import Flag

if TYPE_CHECKING:
    from ..reproduce.study import Study
    from ..training.jobs import Planned


@dataclass
class Reproduce:
    """Make a table or figure of the paper. Arguments after `--` go to every `bot train`, such as the place of the data:
    `bot reproduce table1 -- --imitation.data /data/mocapact`."""

    what: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WHAT")]
    """table1, ablations, layers, scaling, rates, adroit; rl, rl-random-mask or rl-shared-tokenizer."""
    seeds: int | None = None
    """Runs per arm; by default as many as in the paper."""
    only: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="NAME")] = ()
    """Run only this part: an experiment, a label or both, such as humanoid-mod, bot-mix or humanoid-mod/bot-mix. May be
    given several times. The results then show all existing runs; with --draw, only those of this part."""
    jobs: int = 1
    """Number of runs at the same time."""
    keep_going: Flag = False
    """Continue with the other runs when one fails."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/reproduce")
    """Folder of runs and results; studies share their runs."""
    list: Flag = False
    """Only list the runs and their states."""
    draw: Flag = False
    """Only draw the existing runs; run nothing."""
    json: Flag = False
    """Print one JSON object instead of tables."""


def main(args: list[str]) -> None:
    """Run the command."""
    own, more = (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
    options = tyro.cli(Reproduce, prog="bot reproduce", args=own)
    from ..reproduce.study import load_study

    study = load_study(options.what)
    seeds = study.seeds if options.seeds is None else options.seeds
    if seeds < 1 or options.jobs < 1:
        raise ValueError(f"--seeds and --jobs must be 1 or more; got {seeds} and {options.jobs}")
    runs = study.runs(options.out, seeds, more, options.only)
    if options.list:
        show_states(runs, options.json)
        return
    failure = None if options.draw else run_missing(runs, options)
    if options.draw and options.only:
        part = f"{study.title}: {', '.join(options.only)} alone"
        study = replace(study, title=part, arms=tuple(study.chosen(options.only)))
    files = write_results(study, options.out, seeds)
    if options.json:
        print_json({"files": [str(file) for file in files], "finished": sum(run.is_finished for run in runs)})
    else:
        console().print(files[0].read_text(encoding="utf-8"))
        console().print("wrote " + ", ".join(str(file) for file in files))
    if failure:
        raise failure


def show_states(runs: Sequence[Planned], as_json: bool) -> None:
    """Print which runs are finished, begun or missing."""
    states = {str(run.folder): run.state for run in runs}
    if as_json:
        print_json({"runs": states})
        return
    table = Table("run", "state", box=None, pad_edge=False)
    for row in states.items():
        table.add_row(*row)
    console().print(table)


def run_missing(runs: Sequence[Planned], options: Reproduce) -> ValueError | None:
    """Run the missing trainings; with --keep-going, return the failures, which are reported at the end."""
    from ..training.jobs import run_all

    try:
        run_all(runs, options.jobs, keep_going=options.keep_going)
    except ValueError as error:
        if not options.keep_going:
            raise
        return error
    return None


def write_results(study: Study, out: Path, seeds: int) -> list[Path]:
    """Write the table, and the figure if the study has one."""
    from ..files import atomic_write
    from ..pictures import save
    from ..reproduce import learning, scores
    from ..reproduce.study import read_study

    module = learning if study.statistic == "curves" else scores
    arms = read_study(study, out, seeds)
    files = [atomic_write(out / f"{study.name}.md", module.as_markdown(study, arms, seeds))]
    if study.x is not None or study.statistic == "curves":
        files.append(save(partial(module.draw_figure, study, arms, seeds), out / f"{study.name}.png"))
    return files
