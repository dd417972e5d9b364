"""The comparison as a table: rows are arms, columns are metrics on splits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from . import numbers
from .arms import Arm
from .compare import OPEN, Cell, Column
from .markup import Markup, join, tag


def comparison_table(arms: Sequence[Arm], found: Sequence[Column], styles: Sequence[int]) -> Markup:
    """The table with a sentence that says what its ranges are."""
    if not found:
        return tag("p", "Nothing is evaluated yet.", class_="soft")
    groups = [(metric, list(group)) for metric, group in groupby(found, key=lambda column: column.metric)]
    head = tag("thead", _metric_row(groups), _split_row(groups))
    firsts = {id(group[0]) for _, group in groups}
    rows = [
        tag(
            "tr",
            tag("th", style_key(styles[index]), arm.label, unfinished(arm), scope="row"),
            *(_cell(column, index, styles[index], id(column) in firsts) for column in found),
        )
        for index, arm in enumerate(arms)
    ]
    if len(arms) > 1:
        verdicts = (tag("td", column.verdict, class_=_classes(id(column) in firsts, "number")) for column in found)
        rows.append(tag("tr", tag("th", "clear winner", scope="row"), *verdicts, class_="verdict"))
    table = tag("table", head, tag("tbody", *rows))
    return join(tag("div", table, class_="wide"), tag("p", _explain(found), class_="soft"))


def style_key(style: int) -> Markup:
    """A short stroke in the arm's colour."""
    stroke = tag("path", d="M0 5H24")
    return tag("svg", stroke, class_=f"key s{style}", viewBox="0 0 24 10", aria_hidden="true")


def unfinished(arm: Arm) -> Markup | None:
    return None if arm.is_finished else tag("span", "unfinished", class_="tag")


def _metric_row(groups: Sequence[tuple[str, list[Column]]]) -> Markup:
    cells = []
    for metric, group in groups:
        arrow = "↑" if group[0].higher_is_better else "↓"
        title = "higher is better" if group[0].higher_is_better else "lower is better"
        words = (metric.replace("_", " "), " ", tag("span", arrow, title=title))
        cells.append(tag("th", *words, colspan=len(group), class_="first", scope="colgroup"))
    return tag("tr", tag("th", "", rowspan=2), *cells)


def _split_row(groups: Sequence[tuple[str, list[Column]]]) -> Markup:
    cells = [
        tag("th", column.split.replace("_", " "), class_=_classes(index == 0, "number"), scope="col")
        for _, group in groups
        for index, column in enumerate(group)
    ]
    return tag("tr", *cells)


def _cell(column: Column, index: int, style: int, is_first: bool) -> Markup:
    cell = column.cells[index]
    if cell is None:
        return tag("td", "–", class_=_classes(is_first, "number", "result"), title="not evaluated")
    is_best = column.best == index
    there = [one for one in column.cells if one is not None]
    places = numbers.decimals(value for one in there for value in (one.mean, one.low, one.high))
    low, high = numbers.plain(cell.low, places), numbers.plain(cell.high, places)
    return tag(
        "td",
        tag("b", numbers.plain(cell.mean, places)),
        _strip(cell, there, style),
        tag("span", f"{low} – {high}", class_="range"),
        class_=_classes(is_first, "number", "result", "best" if is_best else ""),
        title=_count(cell),
        data_mean=repr(cell.mean),
        data_low=repr(cell.low),
        data_high=repr(cell.high),
    )


def _strip(cell: Cell, there: Sequence[Cell], style: int) -> Markup:
    """Mean and range on the column's common axis, which goes from the lowest value in it to the highest."""
    low, high = min(one.low for one in there), max(one.high for one in there)
    if low == high:
        low, high = low - 1, high + 1

    def place(value: float) -> str:
        return f"{3 + 94 * (value - low) / (high - low):.1f}%"  # the dot at an end stays inside

    return tag(
        "svg",
        tag("line", class_="track", x1=0, x2="100%", y1=5, y2=5),
        tag("line", class_="span", x1=place(cell.low), x2=place(cell.high), y1=5, y2=5),
        tag("circle", cx=place(cell.mean), cy=5, r=3.2),
        class_=f"strip s{style}",
        aria_hidden="true",
    )


def _count(cell: Cell) -> str:
    seeds = "1 seed" if cell.num_seeds == 1 else f"{cell.num_seeds} seeds"
    return seeds if cell.num_episodes is None else f"{seeds}, {cell.num_episodes} episodes each"


def _explain(found: Sequence[Column]) -> str:
    cells = [cell for column in found for cell in column.cells if cell is not None]
    parts = []
    if any(cell.num_seeds > 1 for cell in cells):
        numbers_of = sorted({cell.num_seeds for cell in cells if cell.num_seeds > 1})
        parts.append(
            f"The mean over {' or '.join(map(str, numbers_of))} seeds; below it the lowest to the highest seed."
        )
    if any(cell.num_seeds == 1 for cell in cells):
        parts.append("Of one seed: the mean over its episodes; below it the 95 % interval over episodes.")
    episodes = sorted({cell.num_episodes for cell in cells if cell.num_episodes is not None})
    if episodes:
        parts.append(f"Episodes of each seed and column: {' or '.join(map(str, episodes))}.")
    if any(column.verdict for column in found):
        parts.append("A winner is marked only where its range touches no other.")
    if any(column.verdict == OPEN for column in found):
        parts.append("The comparison is open until all runs are finished.")
    if len({cell.num_seeds == 1 for cell in cells}) > 1:
        parts.append(
            "A range over episodes knows nothing of the spread over seeds: beside a range over seeds it is too narrow."
        )
    return " ".join(parts)


def _classes(is_first: bool, *more: str) -> str | None:
    return " ".join(filter(None, ("first" if is_first else "", *more))) or None
