"""Times of steps beside ours and the floor: a row a contender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .chart import Chart, Panel
from .measure import Outcome
from .results import Column, ResultTable

Parts = tuple[list[ResultTable], list[str]]
"""Tables, and notes on what failed."""


def step_row(
    name: str, title: str, precision: str, outcome: Outcome, floor: float, ran: str | None = None
) -> dict[str, Any]:
    """`ran`: which of our operators, with which backend and in which arithmetic, as seen in a run; peers have none."""
    return {
        "contender": name,
        "title": title,
        "precision": precision,
        "ran": ran,
        "ms": outcome.shown,
        "floor": floor,
        "over_floor": outcome.ms / floor if outcome.ms else None,
        "peak_mib": outcome.peak_mib,
        "timed": outcome.method,
    }


def step_table(key: str, title: str, rows: Sequence[Mapping[str, Any]]) -> ResultTable:
    """Adds each row's time over that of ours at the same precision."""
    ours = {row["precision"]: row["ms"] for row in rows if row["contender"] == "ours"}
    full = [{**row, "over_ours": _ratio(row["ms"], ours.get(row["precision"]))} for row in rows]
    columns = [
        Column("title", "contender"),
        Column("precision", "precision"),
        Column("ms", "ms", "number"),
        Column("over_ours", "time / ours", "ratio"),
        Column("floor", "floor, ms", "number"),
        Column("over_floor", "time / floor", "ratio"),
        Column("peak_mib", "peak, MiB", "number"),
        Column("timed", "timed"),
        Column("ran", "ours ran"),
    ]
    return ResultTable(key, title, columns, full)


def _ratio(a: Any, b: Any) -> float | None:
    return a / b if isinstance(a, float) and isinstance(b, float) else None


def step_chart(tables: Sequence[ResultTable]) -> Chart:
    """A panel for every table of steps."""
    panels = [
        Panel(
            table.title,
            [f"{row['title']}, {row['precision']}" for row in table.rows],
            {"peers": _times(table, False), "ours": _times(table, True), "floor": [row["floor"] for row in table.rows]},
        )
        for table in tables
        if table.rows and "ms" in table.rows[0]
    ]
    return Chart("The encoder: ours, its peers, the arithmetic's floor", panels)


def _times(table: ResultTable, ours: bool) -> list[float | None]:
    """The times of ours, or of all others, each in its row."""
    return [
        row["ms"] if (row["contender"] == "ours") == ours and isinstance(row["ms"], float) else None
        for row in table.rows
    ]
