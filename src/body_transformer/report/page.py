"""Write a page about runs or deployments: one HTML file that opens from disk and fetches nothing from the network."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..files import atomic_write
from .aggregate import group_runs
from .deployment import find_deployments, read_deployments
from .deployment_page import deployment_page
from .load import FolderPath, find_runs, read_run
from .run_page import run_page
from .svg import Canvas

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
    with Canvas() as canvas:
        if folders := find_deployments(places):
            deployments = read_deployments(folders)
            page = deployment_page(canvas, deployments, title, paragraphs, places, path)
            stopped = tuple((one.folder, one.stop) for one in deployments if one.stop)
            atomic_write(path, page)
            return WrittenReport(path, path.stat().st_size, num_deployments=len(deployments), stopped=stopped)
        runs = [read_run(folder) for folder in find_runs(places)]
        page = run_page(canvas, group_runs(runs), title, paragraphs, places, path)
    atomic_write(path, page)
    unfinished = tuple(run.folder for run in runs if not run.is_finished)
    return WrittenReport(path, path.stat().st_size, len(runs), unfinished)


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
