"""Group runs that differ in their seed alone, and compare the groups metric by metric."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from .load import LoadedRun, ValueRange

PER_RUN = {
    "seed",
    "num_parameters",
    "num_steps",
    "label",
    "command",
    "machine",
    "date",
    "package_version",
    "git_commit",
}
"""Keys of `experiment.yaml` that are not part of the compared method: they describe one run or follow from others."""
LOWER_IS_BETTER = ("loss", "error", "drift", "slip", "power", "asymmetry")
"""Words in the names of metrics that should be low."""
OPEN = "open"
"""Verdict while runs are unfinished."""

# -- groups ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunGroup:
    """Runs of one method, one per seed: a row of the comparison."""

    experiment: str
    label: str
    """Name on the page: the label of `bot train --label`, else the folder's name or the variant. Settings that differ
    are appended to make it unique."""
    runs: tuple[LoadedRun, ...]
    """Sorted by seed."""
    notes: tuple[str, ...] = ()
    """Inconsistencies between the runs."""

    @property
    def variant(self) -> str:
        return self.runs[0].variant

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.runs[0].settings

    @property
    def title(self) -> str:
        return str(self.settings.get("title") or self.experiment)

    @property
    def is_finished(self) -> bool:
        return all(run.is_finished for run in self.runs)


def group_runs(runs: Sequence[LoadedRun]) -> list[RunGroup]:
    """Return the groups in the order of their first runs.

    Neighbouring folders `…/seed0`, `…/seed1` form a group, and so do runs in different folders with equal settings.
    """
    groups: dict[tuple[str, ...], list[LoadedRun]] = {}
    keys: dict[tuple[Path, str, str], tuple[str, ...]] = {}  # key of the first run of each parent folder
    for run in runs:
        own = run.experiment, _label(run), json.dumps(compared_settings(run), sort_keys=True, default=str)
        key = keys.setdefault((_place(run), run.experiment, run.variant), own)
        groups.setdefault(key, []).append(run)
    found = [_group(members) for members in groups.values()]
    return [replace(group, label=_unique_label(group, found)) for group in found]


def compared_settings(run: LoadedRun) -> dict[str, Any]:
    """Return the settings that define the method, with dotted keys."""
    return _flat({key: value for key, value in run.settings.items() if key not in PER_RUN})


def _differing_keys(runs: Sequence[LoadedRun]) -> list[str]:
    settings = [compared_settings(run) for run in runs]
    keys = dict.fromkeys(key for one in settings for key in one)
    return [key for key in keys if any(one.get(key) != settings[0].get(key) for one in settings)]


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"policy": {"num_layers": 5}} -> {"policy.num_layers": 5}"""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _place(run: LoadedRun) -> Path:
    """Return `…/mlp-wide` for `…/mlp-wide/seed0`, and the run's own folder for any other."""
    folder = run.folder.resolve()
    return folder.parent if re.fullmatch(r"seed[-_]?\d+", folder.name) else folder


def _label(run: LoadedRun) -> str:
    """Return the label that was given to the run, else the name of the folder around its seeds, else its variant."""
    given, place = run.settings.get("label"), _place(run)
    if given and given != run.variant:
        return str(given)
    return run.variant if place == run.folder.resolve() else place.name


def _group(runs: Sequence[LoadedRun]) -> RunGroup:
    runs = sorted(runs, key=lambda run: run.seed)
    for one, two in pairwise(runs):
        if one.seed == two.seed:
            raise ValueError(
                f"seed {one.seed} of {one.experiment} {one.variant} was given twice: {str(one.folder)!r} and "
                f"{str(two.folder)!r}; leave one of them out"
            )
    notes = []
    if different := _differing_keys(runs):
        notes.append(f"its seeds were run with different settings: {', '.join(different)}")
    if len({run.settings.get("git_commit") for run in runs}) > 1:
        notes.append("its seeds were run at different commits")
    return RunGroup(runs[0].experiment, _label(runs[0]), tuple(runs), tuple(notes))


def _unique_label(group: RunGroup, groups: Sequence[RunGroup]) -> str:
    """Return the group's label, with differing settings or the folder appended if another group has the same label."""
    alike = [other for other in groups if (other.experiment, other.label) == (group.experiment, group.label)]
    if len(alike) == 1:
        return group.label
    own = compared_settings(group.runs[0])
    more = ", ".join(f"{key} {own.get(key)}" for key in _differing_keys([other.runs[0] for other in alike]))
    return f"{group.label} ({more or group.runs[0].folder.parent})"


# -- comparison --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MetricColumn:
    """One metric on one split, over all groups."""

    split: str
    metric: str
    cells: tuple[ValueRange | None, ...]
    """One entry per group; None without a value."""
    best: int | None
    """Index of the group whose interval lies clear of all others."""
    verdict: str
    """Label of the best group, or why there is none; empty with fewer than two groups."""

    @property
    def higher_is_better(self) -> bool:
        return not any(word in self.metric for word in LOWER_IS_BETTER)


def compare(groups: Sequence[RunGroup]) -> list[MetricColumn]:
    """Return the columns metric by metric, in the order in which the runs list them."""
    keys = dict.fromkeys(key for group in groups for run in group.runs for key in run.results)
    metrics, splits = (list(dict.fromkeys(key[part] for key in keys)) for part in (1, 0))
    ordered = [(split, metric) for metric in metrics for split in splits if (split, metric) in keys]
    return [_column(groups, split, metric) for split, metric in ordered]


def over_seeds(runs: Sequence[LoadedRun], split: str, metric: str) -> ValueRange | None:
    """Return the mean of the seeds' means with the lowest and highest; for one seed, its own mean and interval."""
    found = [run.results[split, metric] for run in runs if (split, metric) in run.results]
    if not found:
        return None
    if len(found) == 1:
        return found[0]
    means, numbers = [one.mean for one in found], {one.num_episodes for one in found}
    num_episodes = numbers.pop() if len(numbers) == 1 else None
    return ValueRange(sum(means) / len(means), min(means), max(means), num_episodes, len(means))


def clear_winner(cells: Mapping[int, ValueRange], higher_is_better: bool) -> int | None:
    """Return the index whose interval lies on the better side of all others and touches none."""
    best = (max if higher_is_better else min)(cells, key=lambda index: cells[index].mean)
    others = [cell for index, cell in cells.items() if index != best]
    if higher_is_better:
        is_clear = all(cells[best].low > cell.high for cell in others)
    else:
        is_clear = all(cells[best].high < cell.low for cell in others)
    return best if is_clear else None


def _column(groups: Sequence[RunGroup], split: str, metric: str) -> MetricColumn:
    cells = tuple(over_seeds(group.runs, split, metric) for group in groups)
    column = MetricColumn(split, metric, cells, None, "")
    known = {index: cell for index, cell in enumerate(cells) if cell is not None}
    if len(known) < 2:
        return column
    if not all(groups[index].is_finished for index in known):
        return replace(column, verdict=OPEN)
    best = clear_winner(known, column.higher_is_better)
    return replace(column, best=best, verdict=groups[best].label if best is not None else "no clear winner")
