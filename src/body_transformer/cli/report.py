"""`bot report RUNS… --out FILE.html`: one page about some runs, or about some deployments."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from .output import print_json

if TYPE_CHECKING:
    from ..report.page import WrittenReport


@dataclass
class Report:
    """One self-contained HTML page. Of runs: what was run, the comparison, curves, the body and its mask, films. Of
    deployments (what `bot deploy` logged): joints, torques, timing, events; several are set beside each other."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folders, or folders below which there are runs; or the same with deployments, not both."""
    out: Annotated[str, tyro.conf.arg(metavar="FILE.html")]
    """Where the page goes; one that is there is replaced."""
    title: str | None = None
    """Its heading; without this, the experiment's."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object: where the page is, its size, how many runs it shows and which are unfinished; of
    deployments, how many and which ended early."""


def main(args: list[str]) -> None:
    options = tyro.cli(Report, prog="bot report", args=args)
    from ..report.page import write_report
    from ..report.text import file_size

    written = write_report(options.out, options.runs, options.title)
    if written.num_deployments:
        tell_of_deployments(written, options.json)
        return
    unfinished = [str(folder) for folder in written.unfinished]
    if options.json:
        facts = {"path": str(written.path), "bytes": written.num_bytes, "runs": written.num_runs}
        print_json({**facts, "unfinished": unfinished})
        return
    runs = "1 run" if written.num_runs == 1 else f"{written.num_runs} runs"
    print(f"wrote {written.path} ({file_size(written.num_bytes)}, {runs})")
    for folder in unfinished:
        print(f"unfinished: {folder}", file=sys.stderr)


def tell_of_deployments(written: WrittenReport, json: bool) -> None:
    if json:
        stopped = {str(folder): why for folder, why in written.stopped}
        facts = {"path": str(written.path), "bytes": written.num_bytes, "deployments": written.num_deployments}
        print_json({**facts, "stopped": stopped})
        return
    from ..report.text import file_size

    number = "1 deployment" if written.num_deployments == 1 else f"{written.num_deployments} deployments"
    print(f"wrote {written.path} ({file_size(written.num_bytes)}, {number})")
    for folder, why in written.stopped:
        print(f"ended early: {folder}: {why}", file=sys.stderr)
