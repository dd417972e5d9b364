"""What a benchmark found: tables of plain values, which become JSON, Markdown and a chart."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .chart import Chart, draw

Cell = float | int | str | bool | None
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """One column of a table: where its value is in a row, and how it is written."""

    key: str
    title: str
    form: str = "text"
    """A key of FORMS; a text in a column of numbers (`failed`) is written as it is."""


@dataclass(frozen=True)
class ResultTable:
    """Rows of one kind; a row may hold more than its columns show."""

    key: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]

    def cells(self) -> list[list[str]]:
        """Every row as it is shown."""
        return [[written(row.get(column.key), column.form) for column in self.columns] for row in self.rows]


@dataclass(frozen=True)
class Report:
    """All that one run of a benchmark has to say."""

    name: str
    environment: Mapping[str, str]
    tables: Sequence[ResultTable]
    notes: Sequence[str] = field(default_factory=tuple)
    chart: Chart | None = None

    def to_dict(self) -> dict[str, Any]:
        tables = {
            table.key: {"title": table.title, "rows": [{key: storable(row[key]) for key in row} for row in table.rows]}
            for table in self.tables
        }
        return {
            "bench": self.name,
            "environment": dict(self.environment),
            "tables": tables,
            "notes": list(self.notes),
        }

    def to_markdown(self) -> str:
        head = [f"# bot bench {self.name}", "", *(f"- {key}: {value}" for key, value in self.environment.items())]
        body = [line for table in self.tables for line in ("", f"## {table.title}", "", *markdown_table(table))]
        notes = ["", *(f"- {note}" for note in self.notes)] if self.notes else []
        return "\n".join([*head, *body, *notes, ""])


def markdown_table(table: ResultTable) -> list[str]:
    rows = [[column.title for column in table.columns], ["---"] * len(table.columns), *table.cells()]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]


def storable(value: Cell) -> Cell:
    """JSON has no word for what is not finite."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def significant(value: float) -> str:
    """Three digits that count: `0.0163`, `2.68`, `40.4`, `1,235`."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"


FORMS: Mapping[str, Callable[[Any], str]] = {
    "text": str,
    "number": significant,
    "ratio": lambda value: f"{value:.2f}x",
    "count": lambda value: f"{value:,.0f}",
    "error": lambda value: f"{value:.1e}",
}


def written(value: Cell, form: str) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else FORMS[form](value)


def write_report(report: Report, folder: Path) -> list[Path]:
    """`results.json`, `table.md` and `chart.png` in `folder`; each is written aside, then renamed."""
    makers: dict[str, Callable[[Path], object]] = {
        "results.json": lambda path: path.write_text(json.dumps(report.to_dict(), indent=1) + "\n", encoding="utf-8"),
        "table.md": lambda path: path.write_text(report.to_markdown(), encoding="utf-8"),
    }
    if report.chart is not None:
        chart = report.chart
        makers["chart.png"] = lambda path: draw(chart, path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_written_aside(folder / name, make) for name, make in makers.items()]
    except OSError as error:
        raise OSError(f"cannot write results to {str(folder)!r}: {error.strerror}") from None


def _written_aside(path: Path, make: Callable[[Path], object]) -> Path:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        make(unfinished)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path
