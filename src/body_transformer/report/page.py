"""Write a page about runs or deployments: one HTML file that opens from disk and fetches nothing from the network."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ..files import atomic_write
from .aggregate import group_runs
from .deployment import read_deployments
from .deployment_page import deployment_page
from .load import FolderPath, find_folders, read_run
from .run_page import run_page
from .svg import COLOURS, DASHES, NUM_STYLES, page_style
from .text import grouped

SUFFIXES = (".html", ".htm")


@dataclass(frozen=True)
class WrittenReport:
    """The page that `write_report` wrote."""

    path: Path
    num_bytes: int
    num_runs: int = 0
    unfinished: tuple[Path, ...] = ()
    """Folders of unfinished runs."""
    num_deployments: int = 0
    stopped: tuple[tuple[Path, str], ...] = ()
    """Folders of deployments that ended early, with the reason."""


def write_report(
    path: FolderPath, places: Sequence[FolderPath], title: str | None = None, paragraphs: Sequence[str] = ()
) -> WrittenReport:
    """Write the page about the runs, or the deployments, at or below these folders.

    Args:
        paragraphs: plain text above the results.
    """
    path = Path(path)
    check_writable(path)
    found: dict[str, Any]
    with page_style():
        folders, logs = find_folders(places)
        if logs:
            deployments = read_deployments(logs)
            template, content = "deployments.html", deployment_page(deployments)
            stopped = tuple((one.folder, one.stop) for one in deployments if one.stop)
            found = {"num_deployments": len(deployments), "stopped": stopped}
        else:
            runs = [read_run(folder) for folder in folders]
            template, content = "runs.html", run_page(group_runs(runs))
            found = {"num_runs": len(runs), "unfinished": tuple(run.folder for run in runs if not run.is_finished)}
    content |= {"title": title or content["title"], "paragraphs": paragraphs}
    command = shlex.join(["bot", "report", *map(str, places), "--out", str(path)])
    atomic_write(path, render(template, command=command, **content))
    return WrittenReport(path, path.stat().st_size, **found)


def check_writable(path: Path) -> None:
    """Raise an error, before the work, if the page cannot be written."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"cannot write a report to {str(path)!r}: its name must end in {' or '.join(SUFFIXES)}")
    if path.is_dir():
        raise ValueError(f"cannot write a report to {str(path)!r}: it is a folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OSError(f"cannot write a report to {str(path)!r}: {error.strerror}") from None


def render(template: str, **context: Any) -> str:
    """Return a page from a template; texts are escaped, and a missing name is an error."""
    return _environment().get_template(template).render(context)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates", encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    as_yaml = partial(yaml.safe_dump, sort_keys=False, allow_unicode=True, width=100)
    environment.filters |= {"grouped": grouped, "yaml": as_yaml}
    environment.globals |= {"colours": COLOURS, "dashes": DASHES, "num_styles": NUM_STYLES}
    return environment
