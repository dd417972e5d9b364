"""What was run, on what, and how to run it again."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ..run import DIRTY
from . import numbers
from .arms import Arm, compared, differing
from .markup import Markup, join, tag
from .runs import Place, Run
from .table import style_key, unfinished

FACTS = {
    "machine": "machine",
    "device": "device",
    "package_version": "body_transformer",
    "git_commit": "git commit",
    "versions": "versions",
    "date": "begun",
}
"""Keys of `experiment.yaml` -> what they are called on the page."""


def arms_table(arms: Sequence[Arm], styles: Sequence[int]) -> Markup:
    columns = {name: of for name, of in COLUMNS.items() if name != ENV_STEPS or _has_env_steps(arms)}
    head = [tag("th", "variant"), tag("th", "seeds"), *(tag("th", name, class_="number") for name in columns)]
    rows = [
        tag(
            "tr",
            tag("th", style_key(style), arm.label, unfinished(arm), scope="row"),
            tag("td", ", ".join(str(run.seed) for run in arm.runs)),
            *(
                tag("td", _range([value(run) for run in arm.runs], show), class_="number")
                for value, show in columns.values()
            ),
        )
        for arm, style in zip(arms, styles, strict=True)
    ]
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows))
    return join(tag("div", table, class_="wide"), _facts(arms))


def warnings(arms: Sequence[Arm]) -> Markup | None:
    """What is unfinished or odd, run by run; None if nothing is."""
    odd = [f"{arm.experiment} {arm.label}: {note}" for arm in arms for note in arm.notes]
    runs = [(arm, run) for arm in arms for run in arm.runs if not run.is_finished]
    odd += [f"{arm.experiment} {arm.label}, seed {run.seed}: {'; '.join(run.notes)}" for arm, run in runs]
    if not odd:
        return None
    number = "1 run is" if len(runs) == 1 else f"{len(runs)} runs are"
    words = f"{number} unfinished: what is shown of them will change." if runs else "Read the comparison with care."
    items = tag("ul", *(tag("li", text) for text in odd))
    return tag("div", tag("p", tag("b", words)), items, class_="warning", role="note")


def rerun(arms: Sequence[Arm], places: Iterable[Place], out: Path) -> Markup:
    """The commands, exact where the runs recorded them."""
    lines, is_guessed = [], False
    commits = dict.fromkeys(run.settings.get("git_commit") for arm in arms for run in arm.runs)
    lines += [_checkout(commit) for commit in commits if commit and len(commits) == 1]
    for arm in arms:
        commands = [_command(run) for run in arm.runs]
        if None in commands:
            is_guessed = True
            lines += [f"# {arm.label}: {key} {value}" for key, value in _set_apart(arm, arms).items()]
        lines += [found or _usual_command(run) for found, run in zip(commands, arm.runs, strict=True)]
    lines.append(shlex.join(["bot", "report", *map(str, places), "--out", str(out)]))
    words = "Their settings in full are below."
    if is_guessed:
        words = (
            "Some runs recorded no command; for them it is the usual one for this variant and seed, and what was set "
            "beside that is in the settings below."
        )
    settings = (
        tag("details", tag("summary", f"settings of {arm.experiment} {arm.label}"), tag("pre", _yaml(arm.settings)))
        for arm in arms
    )
    return join(tag("pre", tag("code", "\n".join(lines))), tag("p", words, class_="soft"), *settings)


def _set_apart(arm: Arm, arms: Sequence[Arm]) -> dict[str, Any]:
    """The settings in which it differs from other arms of its variant."""
    alike = [other for other in arms if (other.experiment, other.variant) == (arm.experiment, arm.variant)]
    mine = compared(arm.runs[0])
    return {key: mine.get(key) for key in differing([compared(other.runs[0]) for other in alike])}


def _checkout(commit: str) -> str:
    found = commit.removesuffix(DIRTY)
    return f"git checkout {found}" + ("" if found == commit else "  # the runs had files that differed from it")


def _command(run: Run) -> str | None:
    command = run.settings.get("command")
    if isinstance(command, list):
        return shlex.join(map(str, command))
    return command if isinstance(command, str) and command.strip() else None


def _usual_command(run: Run) -> str:
    return shlex.join(["bot", "train", run.experiment, "--variant", run.variant, "--seed", str(run.seed)])


def _yaml(settings: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True, width=100)


def _parameters(run: Run) -> int | None:
    number = run.settings.get("num_parameters")
    return number if type(number) is int else None


def _has_env_steps(arms: Sequence[Arm]) -> bool:
    return any(run.env_steps is not None for arm in arms for run in arm.runs)


ENV_STEPS = "environment steps"
COLUMNS: dict[str, tuple[Callable[[Run], Any], Callable[[Any], str]]] = {
    "parameters": (_parameters, numbers.grouped),
    "steps": (lambda run: run.step, numbers.grouped),
    ENV_STEPS: (lambda run: run.env_steps, numbers.grouped),
    "training time": (lambda run: run.time_s, numbers.duration),
}
"""Of what was run: what it is, and how it is shown."""


def _range(values: Sequence[Any], show: Any) -> str:
    """One value, or the lowest to the highest."""
    there = [value for value in values if value is not None]
    if not there:
        return "not recorded"
    low, high = show(min(there)), show(max(there))
    return str(low) if low == high else f"{low} – {high}"


def _facts(arms: Sequence[Arm]) -> Markup:
    """Machines and versions, each said once."""
    found: dict[str, dict[str, None]] = {}
    for run in (run for arm in arms for run in arm.runs):
        for key, name in FACTS.items():
            value = run.settings.get(key)
            if isinstance(value, Mapping):
                value = ", ".join(f"{part} {what}" for part, what in value.items())
            if value:
                found.setdefault(name, {})[str(value)] = None
    if "machine" not in found and "device" not in found:
        found["machine"] = {"not recorded": None}
    return tag("p", " · ".join(f"{name} {', '.join(values)}" for name, values in found.items()), class_="soft")
