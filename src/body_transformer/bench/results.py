"""Results of a benchmark: tables of plain values that become JSON, Markdown and figures, with their environment."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..files import atomic_write, check_writable
from ..report.text import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = float | int | str | bool | None
Row = Mapping[str, Any]
PACKAGES = ("torch", "triton", "numpy", "onnxruntime")


# -- tables ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResultColumn:
    """One column of a table: the key of its value in a row, and its format."""

    key: str
    title: str
    form: str = "text"
    """A key of FORMS; text in a column of numbers, such as `failed`, is shown unchanged."""


@dataclass(frozen=True)
class ResultTable:
    """Rows and the columns to show; a row may have further keys."""

    key: str
    title: str
    columns: Sequence[ResultColumn]
    rows: Sequence[Row]
    label: str = ""
    """Template of a row's label in the chart, filled in from the row: `{row} {dtype}`."""
    series: Mapping[str, Callable[[Row], Cell]] = field(default_factory=dict)
    """Name of a series in the chart -> its value in a row; a table without series is not in the chart."""
    unit: str = "ms"
    """Unit of the series."""

    def cells(self) -> list[list[str]]:
        """Return the text of every cell, row by row."""
        return [[written(row.get(column.key), column.form) for column in self.columns] for row in self.rows]


def significant(value: float) -> str:
    """Format three significant digits: `0.0163`, `2.68`, `40.4`, `1,235`."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"


FORMS: Mapping[str, Callable[[Any], str]] = {
    "text": str,
    "label": str,  # a text that is never wrapped
    "number": significant,
    "tenths": lambda value: f"{value:,.1f}",
    "share": lambda value: f"{value:.4f}",
    "ratio": lambda value: f"{value:.2f}x",
    "count": lambda value: f"{value:,.0f}",
    "error": lambda value: f"{value:.1e}",
}


def written(value: Cell, form: str) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else FORMS[form](value)


def storable(value: Cell) -> Cell:
    """Return a value for JSON: infinities and NaN become strings."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


# -- the report --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BenchReport:
    """All results of one run of a benchmark."""

    name: str
    environment: Mapping[str, str]
    tables: Sequence[ResultTable]
    notes: Sequence[str] = field(default_factory=tuple)
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
    """File name -> function that draws the figure."""
    content: Mapping[str, Any] | None = None
    """Content of results.json; by default the environment, tables and notes."""

    def to_dict(self) -> dict[str, Any]:
        if self.content is not None:
            return dict(self.content)
        tables = {
            table.key: {"title": table.title, "rows": [{key: storable(row[key]) for key in row} for row in table.rows]}
            for table in self.tables
        }
        environment, notes = dict(self.environment), list(self.notes)
        return {"bench": self.name, "environment": environment, "tables": tables, "notes": notes}

    def to_markdown(self) -> str:
        parts = [f"# bot bench {self.name}\n", _bullets(f"{key}: {value}" for key, value in self.environment.items())]
        for table in self.tables:
            head = [column.title for column in table.columns]
            parts += [f"## {table.title}\n", markdown_table(head, table.cells())]
        return "\n".join([*parts, _bullets(self.notes)] if self.notes else parts)

    def write(self, folder: Path) -> list[Path]:
        """Write `results.json`, `table.md` and the figures; each file appears only when it is complete."""
        from ..pictures import save

        return [
            atomic_write(folder / "results.json", json.dumps(self.to_dict(), indent=1) + "\n"),
            atomic_write(folder / "table.md", self.to_markdown()),
            *(save(draw, folder / name) for name, draw in self.figures.items()),
        ]


def _bullets(texts: Iterable[str]) -> str:
    return "".join(f"- {text}\n" for text in texts)


def output_folder(given: str | None) -> Path | None:
    """Create the folder for results; raise an error if it cannot be written."""
    if given is None:
        return None
    if not given:
        raise ValueError("--out is empty; give a folder for the results ('.' is the current one)")
    check_writable(Path(given), "results")
    return Path(given)


# -- environment -------------------------------------------------------------------------------------------------------


def describe(device: str, command: str) -> dict[str, str]:
    """Return device, versions, date and command, in the order in which they are shown."""
    import torch

    described = {
        "device": device_name(device),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "body_transformer": __version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }
    if device == "cuda":
        described["cuda"] = str(torch.version.cuda)
    else:
        described["default threads"] = str(torch.get_num_threads())
        if hasattr(os, "getloadavg"):  # not on Windows
            described["load average"] = f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    return described


def device_name(device: str) -> str:
    if device != "cuda":
        return _cpu_name()
    import torch

    return torch.cuda.get_device_name()


def _cpu_name() -> str:
    """Return the processor's model name if the system reports it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
