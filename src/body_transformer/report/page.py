"""Write a page about runs or deployments: one HTML file that opens from disk and fetches nothing from the network."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ..files import atomic_write, check_writable
from ..pictures import own_style
from ..text import printable
from .aggregate import group_runs
from .deployment import Deployment, read_deployments
from .deployment_page import deployment_page
from .load import FolderPath, LoadedRun, find_folders, read_run
from .run_page import run_page
from .svg import COLOURS, DASHES, NUM_STYLES, PAGE_STYLE
from .text import grouped

SUFFIXES = (".html", ".htm")
KEPT = "\n\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}"
"""Characters of texts that stay on a page, although they are not printable ones."""


@dataclass(frozen=True)
class WrittenReport:
    """The page that `write_report` wrote, and what it shows."""

    path: Path
    runs: tuple[LoadedRun, ...] = ()
    deployments: tuple[Deployment, ...] = ()
    """Empty on a page about runs, which is one without deployments."""

    @property
    def unfinished(self) -> list[Path]:
        """Folders of unfinished runs."""
        return [run.folder for run in self.runs if not run.is_finished]

    @property
    def stopped(self) -> dict[Path, str]:
        """Folders of deployments that ended early, with the reason."""
        return {one.folder: one.stop for one in self.deployments if one.stop}


def write_report(
    path: FolderPath, places: Sequence[FolderPath], title: str | None = None, paragraphs: Sequence[str] = ()
) -> WrittenReport:
    """Write the page about the runs, or the deployments, at or below these folders.

    Args:
        paragraphs: plain text above the results.
    """
    path = Path(path)
    check_page(path)
    with own_style(PAGE_STYLE):
        folders, logs = find_folders(places)
        shown = WrittenReport(path, tuple(map(read_run, folders)), tuple(read_deployments(logs)))
        if logs:
            template, content = "deployments.html", deployment_page(shown.deployments)
        else:
            template, content = "runs.html", run_page(group_runs(shown.runs))
    content |= {"title": title or content["title"], "paragraphs": paragraphs}
    command = shlex.join(["bot", "report", *map(str, places), "--out", str(path)])
    atomic_write(path, render(template, command=command, **content))
    return shown


def check_page(path: Path) -> None:
    """Raise an error, before the work, if the page cannot be written."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"cannot write a report to {str(path)!r}: its name must end in {' or '.join(SUFFIXES)}")
    if path.is_dir():
        raise ValueError(f"cannot write a report to {str(path)!r}: it is a folder")
    check_writable(path.parent, "a report")


def render(template: str, **context: Any) -> str:
    """Return a page from a template; texts are escaped, and a missing name is an error."""
    return _environment().get_template(template).render(context)


def _shown(value: Any) -> Any:
    """Return a value of a template; texts have their control characters and direction overrides escaped."""
    return printable(value, keep=KEPT) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates", encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    as_yaml = partial(yaml.safe_dump, sort_keys=False, allow_unicode=True, width=100)
    environment.filters |= {"grouped": grouped, "yaml": as_yaml}
    environment.globals |= {"colours": COLOURS, "dashes": DASHES, "num_styles": NUM_STYLES}
    return environment
