"""`bot report RUNS… --out FILE.html`: one page about runs, or about deployments."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

from .output import print_json, say
from .run_options import Flag


@dataclass
class Report:
    """Write one self-contained HTML page. For runs: comparison, learning curves, films, bodies and masks, settings. For
    deployments (logs of `bot deploy`): joints, torques, timing and events, and several of them side by side."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folders, or folders with runs below them; or the same with deployments, but not both."""
    out: Annotated[str, tyro.conf.arg(metavar="FILE.html")]
    """The page; an existing file is replaced."""
    title: str | None = None
    """Heading of the page; by default the experiment's title."""
    json: Flag = False
    """Print one JSON object: the page's path and size, the number of runs and the unfinished ones, or the number of
    deployments and those that ended early."""


def main(args: list[str]) -> None:
    """Run the command."""
    options = tyro.cli(Report, prog="bot report", args=args)
    from ..report.page import write_report
    from ..report.text import file_size

    page = write_report(options.out, options.runs, options.title)
    num_bytes, stopped = page.path.stat().st_size, {str(folder): why for folder, why in page.stopped.items()}
    count, kind = (len(page.deployments), "deployment") if page.deployments else (len(page.runs), "run")
    if options.json:
        missing = {"stopped": stopped} if page.deployments else {"unfinished": list(map(str, page.unfinished))}
        print_json({"path": str(page.path), "bytes": num_bytes, f"{kind}s": count, **missing})
        return
    say(f"wrote {page.path} ({file_size(num_bytes)}, {count} {kind}{'s' * (count != 1)})")
    for folder in page.unfinished:
        say(f"unfinished: {folder}", file=sys.stderr)
    for name, why in stopped.items():
        say(f"ended early: {name}: {why}", file=sys.stderr)
