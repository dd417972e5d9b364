"""What the seeds of each arm say together, and whether one arm is clearly best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .arms import Arm
from .runs import Run

LOWER_IS_BETTER = ("loss", "error")
OPEN = "open"
"""The verdict while runs are unfinished."""


@dataclass(frozen=True)
class Cell:
    """One arm's value in a column."""

    mean: float
    low: float
    high: float
    num_seeds: int
    """With one, `low` and `high` bound the interval over episodes, else they are the lowest and the highest seed."""
    num_episodes: int | None
    """Of each seed, where all have as many."""


@dataclass(frozen=True)
class Column:
    """One metric on one split."""

    split: str
    metric: str
    cells: tuple[Cell | None, ...]
    """One an arm; None where it has no value."""
    best: int | None
    """The arm whose interval lies clear of all others."""
    verdict: str
    """The same in words; empty where nothing is compared."""

    @property
    def higher_is_better(self) -> bool:
        return not any(word in self.metric for word in LOWER_IS_BETTER)


def columns(arms: Sequence[Arm]) -> list[Column]:
    """Metric by metric, in the order in which the runs name them."""
    keys = dict.fromkeys(key for arm in arms for run in arm.runs for key in run.results)
    metrics, splits = (list(dict.fromkeys(key[part] for key in keys)) for part in (1, 0))
    ordered = [(split, metric) for metric in metrics for split in splits if (split, metric) in keys]
    return [_column(arms, split, metric) for split, metric in ordered]


def over_seeds(runs: Sequence[Run], split: str, metric: str) -> Cell | None:
    """The mean of the seeds' means with the lowest and the highest; of one seed, its own mean and interval."""
    found = [run.results[split, metric] for run in runs if (split, metric) in run.results]
    if not found:
        return None
    numbers = {one.num_episodes for one in found}
    num_episodes = numbers.pop() if len(numbers) == 1 else None
    if len(found) == 1:
        return Cell(found[0].mean, found[0].low, found[0].high, 1, num_episodes)
    means = [one.mean for one in found]
    return Cell(sum(means) / len(means), min(means), max(means), len(means), num_episodes)


def _column(arms: Sequence[Arm], split: str, metric: str) -> Column:
    cells = tuple(over_seeds(arm.runs, split, metric) for arm in arms)
    column = Column(split, metric, cells, None, "")
    there = {index: cell for index, cell in enumerate(cells) if cell is not None}
    if len(there) < 2:
        return column
    if not all(arms[index].is_finished for index in there):
        return Column(split, metric, cells, None, OPEN)
    best = clear_winner(there, column.higher_is_better)
    return Column(split, metric, cells, best, arms[best].label if best is not None else "no clear winner")


def clear_winner(cells: Mapping[int, Cell], higher_is_better: bool) -> int | None:
    """The one whose interval touches no other, on the good side of all of them."""
    if higher_is_better:
        best = max(cells, key=lambda index: cells[index].mean)
        clear = all(cells[best].low > cell.high for index, cell in cells.items() if index != best)
    else:
        best = min(cells, key=lambda index: cells[index].mean)
        clear = all(cells[best].high < cell.low for index, cell in cells.items() if index != best)
    return best if clear else None
