"""Arms of a comparison: runs that differ by their seed alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from .runs import Run

PER_RUN = (
    "seed",
    "package_version",
    "git_commit",
    "num_parameters",
    "command",
    "machine",
    "device",
    "date",
    "versions",
)
"""Keys of `experiment.yaml` that are about one run, not about what is compared."""


@dataclass(frozen=True)
class Arm:
    """A row of the comparison."""

    experiment: str
    label: str
    """The variant; with more words where one variant was run in several ways."""
    runs: tuple[Run, ...]
    """By seed."""
    notes: tuple[str, ...] = ()
    """What is odd about the whole."""

    @property
    def variant(self) -> str:
        return self.runs[0].variant

    @property
    def is_finished(self) -> bool:
        return all(run.is_finished for run in self.runs)

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.runs[0].settings


def gather(runs: Sequence[Run]) -> list[Arm]:
    """The arms, in the order in which their first runs were given.

    Neighbours `…/seed0`, `…/seed1` belong together, and so do runs from different folders that were asked for the same.
    """
    groups: dict[tuple[str, ...], list[Run]] = {}
    keys: dict[tuple[Path, str, str], tuple[str, ...]] = {}  # of the neighbours that came first
    for run in runs:
        place = run.folder.resolve().parent if is_seed(run.folder) else run.folder.resolve()
        key = keys.setdefault((place, run.experiment, run.variant), _key(run))
        groups.setdefault(key, []).append(run)
    return _tell_apart([_arm(group) for group in groups.values()])


def is_seed(folder: Path) -> bool:
    return re.fullmatch(r"seed[-_]?\d+", folder.resolve().name) is not None


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"policy": {"num_layers": 5}} -> {"policy.num_layers": 5}"""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _key(run: Run) -> tuple[str, ...]:
    return run.experiment, _folder_label(run), json.dumps(compared(run), sort_keys=True, default=str)


def compared(run: Run) -> dict[str, Any]:
    """Its settings, flat, without those that are about this run alone."""
    return flat({key: value for key, value in run.settings.items() if key not in PER_RUN})


def _folder_label(run: Run) -> str:
    """`mlp-equal-time` of `…/mlp-equal-time/seed0`; the variant where folders are named otherwise."""
    return run.folder.resolve().parent.name if is_seed(run.folder) else run.variant


def _arm(runs: Sequence[Run]) -> Arm:
    runs = sorted(runs, key=lambda run: run.seed)
    for one, two in pairwise(runs):
        if one.seed == two.seed:
            raise ValueError(
                f"seed {one.seed} of {one.experiment} {one.variant} is there twice: {str(one.folder)!r} and "
                f"{str(two.folder)!r}; name one of them"
            )
    notes = []
    if different := differing([compared(run) for run in runs]):
        notes.append(f"its seeds were not run with the same settings: {', '.join(different)} differ")
    if len({run.settings.get("git_commit") for run in runs}) > 1:
        notes.append("its seeds were run at different commits")
    return Arm(runs[0].experiment, _folder_label(runs[0]), tuple(runs), tuple(notes))


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys that do not have the same value everywhere."""
    keys = dict.fromkeys(key for one in settings for key in one)
    return [key for key in keys if any(one.get(key) != settings[0].get(key) for one in settings)]


def _tell_apart(arms: list[Arm]) -> list[Arm]:
    """Arms of one experiment that share a label get their different settings, or else their folders, added."""
    told = []
    for arm in arms:
        alike = [other for other in arms if (other.experiment, other.label) == (arm.experiment, arm.label)]
        if len(alike) > 1:
            mine = compared(arm.runs[0])
            keys = differing([compared(other.runs[0]) for other in alike])
            more = ", ".join(f"{key} {mine.get(key)}" for key in keys)
            arm = replace(arm, label=f"{arm.label} ({more or arm.runs[0].folder.parent})")
        told.append(arm)
    return told
