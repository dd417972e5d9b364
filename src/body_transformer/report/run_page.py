"""The page about runs: comparison, films, learning curves, bodies, settings and commands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from ..run import DIRTY
from .aggregate import OPEN, MetricColumn, RunGroup, compare
from .curves import CurveAxis, curve
from .figures import curves_chart, paths_chart
from .load import LoadedRun, is_evaluation
from .media import bodies, films
from .svg import Drawing, Line, label_styles
from .text import decimals, duration, grouped, rounded

MINOR = ("train/learning_rate", "train/steps_per_s")
MAJOR_OF_RL = ("train/return", "train/length")
"""Training curves of reinforcement learning that are not folded away."""
AXIS_NAMES: dict[CurveAxis, str] = {"step": "step", "env_steps": "environment steps", "time_s": "seconds"}
MAX_MAIN_CHARTS = 12
FACTS = {
    "machine": "machine",
    "package_version": "body_transformer",
    "git_commit": "git commit",
    "date": "begun",
}
"""Keys of `experiment.yaml` -> their names on the page."""
ENV_STEPS = "environment steps"
RUN_COLUMNS: dict[str, tuple[Callable[[LoadedRun], Any], Callable[[Any], str]]] = {
    "parameters": (lambda run: run.num_parameters, grouped),
    "steps": (lambda run: run.step, grouped),
    ENV_STEPS: (lambda run: run.env_steps, grouped),
    "training time": (lambda run: run.time_s, duration),
}
"""Name of a column in the table of runs -> functions that return its value and format it."""


def run_page(groups: Sequence[RunGroup]) -> dict[str, Any]:
    """Return the context of the template `runs.html`."""
    styles = label_styles(group.label for group in groups)
    titles = list(dict.fromkeys(group.title for group in groups))
    names = dict.fromkeys(group.experiment for group in groups)
    members = [[group for group in groups if group.experiment == name] for name in names]
    return {
        "title": titles[0] if len(titles) == 1 else f"Runs of {len(titles)} experiments",
        "groups": groups,
        "num_runs": len(_runs(groups)),
        "warnings": _warnings(groups),
        "num_unfinished": sum(not run.is_finished for run in _runs(groups)),
        "experiments": [_experiment(own, styles) for own in members],
        "styles": styles,
        "commands": _commands(_runs(groups)),
    }


def _experiment(groups: Sequence[RunGroup], styles: Mapping[str, int]) -> dict[str, Any]:
    return {
        "groups": groups,
        "comparison": _comparison(groups),
        "films": films(groups),
        "paths": _paths(groups),
        "curves": _curves(groups, styles),
        "bodies": bodies(groups),
        "table": _run_table(groups),
        "facts": _facts(groups),
    }


def _runs(groups: Sequence[RunGroup]) -> list[LoadedRun]:
    return [run for group in groups for run in group.runs]


def _warnings(groups: Sequence[RunGroup]) -> list[str]:
    """Return notes on inconsistent groups, then on unfinished runs."""
    odd = [f"{group.experiment} {group.label}: {note}" for group in groups for note in group.notes]
    unfinished = [(group, run) for group in groups for run in group.runs if not run.is_finished]
    return odd + [
        f"{group.experiment} {group.label}, seed {run.seed}: {'; '.join(run.notes)}" for group, run in unfinished
    ]


# -- comparison --------------------------------------------------------------------------------------------------------


def _comparison(groups: Sequence[RunGroup]) -> dict[str, Any]:
    columns = compare(groups)
    cells = [cell for column in columns for cell in column.cells if cell is not None]
    return {
        "columns": columns,
        "metrics": [list(own) for _, own in groupby(columns, key=lambda column: column.metric)],
        "rows": [[_cell(column, index) for column in columns] for index in range(len(groups))],
        "num_seeds": sorted({cell.num_seeds for cell in cells if cell.num_seeds > 1}),
        "has_single_seed": any(cell.num_seeds == 1 for cell in cells),
        "num_episodes": sorted({cell.num_episodes for cell in cells if cell.num_episodes is not None}),
        "has_verdict": any(column.verdict for column in columns),
        "is_open": any(column.verdict == OPEN for column in columns),
    }


def _cell(column: MetricColumn, index: int) -> dict[str, Any] | None:
    cell = column.cells[index]
    if cell is None:
        return None
    known = [one for one in column.cells if one is not None]
    places = decimals(value for one in known for value in (one.mean, one.low, one.high))
    low, high = min(one.low for one in known), max(one.high for one in known)
    if low == high:
        low, high = low - 1, high + 1
    parts = {"mean": cell.mean, "low": cell.low, "high": cell.high}
    return {
        "numbers": cell,
        "texts": {name: rounded(value, places) for name, value in parts.items()},
        "places": {name: f"{_place(value, low, high):.1f}%" for name, value in parts.items()},
        "is_best": column.best == index,
    }


def _place(value: float, low: float, high: float) -> float:
    """Return a position in percent on the column's common axis, with room for the dot at both ends."""
    span = high - low
    share = (value - low) / span if 0 < span < math.inf else 0.5  # numbers that are too large have no place
    return 3 + 94 * min(max(share, 0.0), 1.0)


def _paths(groups: Sequence[RunGroup]) -> list[Drawing]:
    """Return a chart per group with walking robots: the paths of its lowest seed that has any."""
    found = ((group, run) for group in groups for run in group.runs[:1] if run.paths is not None)
    return [paths_chart(f"{group.label}, seed {run.seed}", run.paths) for group, run in found if run.paths is not None]


# -- learning curves ---------------------------------------------------------------------------------------------------


def _curves(groups: Sequence[RunGroup], styles: Mapping[str, int]) -> dict[str, Any]:
    """Return the charts: evaluations first, then losses; minor curves are folded away."""
    keys = list(dict.fromkeys(key for run in _runs(groups) for key in run.curves))
    is_rl = any(run.env_steps is not None for run in _runs(groups))
    minor = [key for key in keys if key in MINOR or (is_rl and not is_evaluation(key) and key not in MAJOR_OF_RL)]
    keys.sort(key=lambda key: (key in minor, not is_evaluation(key)))  # stable: otherwise in the order of logging
    main: list[Drawing] = []
    folded: list[Drawing] = []
    for key in keys:
        for by in _axes_of(key, is_rl):
            drawn = [(group, curve(group, key, by)) for group in groups]
            lines = [Line(group.label, styles[group.label], line) for group, line in drawn if line is not None]
            if lines:
                chart = curves_chart(_chart_title(key), AXIS_NAMES[by], lines)
                (folded if key in minor or len(main) >= MAX_MAIN_CHARTS else main).append(chart)
    return {"main": main, "folded": folded, "num_seeds": {len(group.runs) for group in groups}}


def _axes_of(key: str, is_rl: bool) -> tuple[CurveAxis, ...]:
    """Return the horizontal axes; time is a second one for losses of imitation and evaluations of reinforcement."""
    if is_rl:
        return ("env_steps", "time_s") if is_evaluation(key) else ("env_steps",)
    return ("step", "time_s") if key.endswith("loss") else ("step",)


def _chart_title(key: str) -> str:
    if is_evaluation(key):
        _, split, metric = key.split("/")
        return f"{metric} on {split}".replace("_", " ")
    return key.replace("/", " ").replace("_", " ")


# -- what was run ------------------------------------------------------------------------------------------------------


def _run_table(groups: Sequence[RunGroup]) -> dict[str, Any]:
    has_env_steps = any(run.env_steps is not None for run in _runs(groups))
    columns = {name: column for name, column in RUN_COLUMNS.items() if name != ENV_STEPS or has_env_steps}
    rows = [[_range([of(run) for run in group.runs], text) for of, text in columns.values()] for group in groups]
    return {"columns": list(columns), "rows": rows}


def _range(values: Sequence[Any], text: Callable[[Any], str]) -> str:
    """Return one value, or the lowest to the highest."""
    known = [value for value in values if value is not None]
    if not known:
        return "not recorded"
    low, high = text(min(known)), text(max(known))
    return low if low == high else f"{low} – {high}"


def _facts(groups: Sequence[RunGroup]) -> str:
    """Return machines and versions, each once."""
    found = {name: [str(run.settings.get(key) or "") for run in _runs(groups)] for key, name in FACTS.items()}
    texts = {name: ", ".join(filter(None, dict.fromkeys(values))) for name, values in found.items()}
    texts["machine"] = texts["machine"] or "not recorded"
    return " · ".join(f"{name} {text}" for name, text in texts.items() if text)


def _commands(runs: Sequence[LoadedRun]) -> list[str]:
    """Return the commands of the runs; a `git checkout` comes first if all have the same commit."""
    commits = {run.settings.get("git_commit") for run in runs}
    commit = commits.pop() if len(commits) == 1 else None
    lines = []
    if commit:
        clean = commit.removesuffix(DIRTY)
        note = "" if clean == commit else "  # the source of the runs differed from it"
        lines.append(f"git checkout {clean}{note}")
    return lines + [str(run.settings.get("command", f"# not recorded for {run.folder}")) for run in runs]
