"""`bot report RUNS… --out FILE.html`: one page about some runs."""

import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

from .output import print_json


@dataclass
class Report:
    """One self-contained HTML page: what was run, the comparison, curves, the body and its mask, films."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folders, or folders below which there are runs."""
    out: Annotated[str, tyro.conf.arg(metavar="FILE.html")]
    """Where the page goes; one that is there is replaced."""
    title: str | None = None
    """Its heading; without this, the experiment's."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object: where the page is, its size, how many runs it shows and which are unfinished."""


def main(args: list[str]) -> None:
    options = tyro.cli(Report, prog="bot report", args=args)
    from ..report.numbers import size
    from ..report.page import write_report

    written = write_report(options.out, options.runs, options.title)
    unfinished = [str(folder) for folder in written.unfinished]
    if options.json:
        facts = {"path": str(written.path), "bytes": written.num_bytes, "runs": written.num_runs}
        print_json({**facts, "unfinished": unfinished})
        return
    runs = "1 run" if written.num_runs == 1 else f"{written.num_runs} runs"
    print(f"wrote {written.path} ({size(written.num_bytes)}, {runs})")
    for folder in unfinished:
        print(f"unfinished: {folder}", file=sys.stderr)
