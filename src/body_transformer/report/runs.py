"""Run folders, read as they are: a run that is unfinished or broken is read as far as it goes, and says so."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

DESCRIPTION, METRICS, EVALUATION = "experiment.yaml", "metrics.jsonl", "evaluation.json"
FILMS = ("film.webp", "film.gif", "film.mp4")
REQUIRED = ("name", "variant", "seed")
PLACES = ("step", "epoch", "time_s", "env_steps")
"""Keys of a line that say when it was written."""

Place = str | os.PathLike[str]


@dataclass(frozen=True)
class Estimate:
    """A mean over episodes and its interval."""

    mean: float
    low: float
    high: float
    num_episodes: int | None = None


@dataclass(frozen=True)
class Point:
    """A logged value."""

    step: int
    time_s: float | None
    value: Estimate
    env_steps: int | None = None
    """Of all robots together, in reinforcement learning; there a step is an update of the policy."""


@dataclass(frozen=True)
class Run:
    """What a run's folder tells."""

    folder: Path
    settings: Mapping[str, Any]
    """What `experiment.yaml` holds."""
    curves: Mapping[str, Sequence[Point]]
    """Name of a logged value -> its points, by step."""
    results: Mapping[tuple[str, str], Estimate]
    """(split, metric) -> how good the policy is."""
    step: int
    """The last one logged."""
    epoch: float | None
    """The same, in epochs."""
    time_s: float | None
    """How long training took until then."""
    notes: tuple[str, ...] = field(default=())
    """What is missing or broken; none if the run is finished."""
    env_steps: int | None = None
    """Of all robots together until then, in reinforcement learning."""

    @property
    def is_finished(self) -> bool:
        return not self.notes

    @property
    def experiment(self) -> str:
        return str(self.settings["name"])

    @property
    def variant(self) -> str:
        return str(self.settings["variant"])

    @property
    def seed(self) -> int:
        return int(self.settings["seed"])

    @property
    def film(self) -> Path | None:
        return next((self.folder / name for name in FILMS if (self.folder / name).is_file()), None)


# -- finding -----------------------------------------------------------------------------------------------------------


def find_runs(places: Iterable[Place]) -> list[Path]:
    """The run folders that are named, or that lie below the folders that are named; each once."""
    found: dict[Path, Path] = {}
    for place in places:
        folder = Path(place)
        if not folder.exists():
            raise FileNotFoundError(f"no run in {str(folder)!r}: there is no such folder")
        below = runs_below(folder)
        if not below:
            raise ValueError(
                f"{str(folder)!r} is no run and holds none: there is no {DESCRIPTION} in it or below it, nor a "
                "deployment's log"
            )
        for run in below:
            found.setdefault(run.resolve(), run)
    if not found:
        raise ValueError("a report needs at least one run; got none")
    return list(found.values())


def runs_below(folder: Path) -> list[Path]:
    """The folder itself, if it is a run."""
    if (folder / DESCRIPTION).is_file():
        return [folder]
    found = []
    for place, folders, files in os.walk(folder):
        folders.sort()
        if DESCRIPTION in files:
            found.append(Path(place))
            folders.clear()  # a run holds no runs
    return found


# -- reading -----------------------------------------------------------------------------------------------------------


def read_run(folder: Path) -> Run:
    """Only without a readable `experiment.yaml` there is nothing to report, and that is an error."""
    settings = _read_settings(folder / DESCRIPTION)
    lines, notes = _read_lines(folder / METRICS)
    curves = _curves(lines)
    results, why_not = _read_evaluation(folder / EVALUATION)
    if why_not:
        ends = {tuple(key.split("/")[1:]): points[-1] for key, points in curves.items() if is_evaluation(key)}
        results = {(split, metric): point.value for (split, metric), point in ends.items()}
        shown = f"the values shown are those of step {min(p.step for p in ends.values())}" if ends else "no values yet"
        notes.append(f"{why_not}: {shown}")
    step = max((line["step"] for line in lines), default=0)
    epoch = max((line["epoch"] for line in lines if _is_number(line.get("epoch"))), default=None)
    times = [line["time_s"] for line in lines if _is_number(line.get("time_s"))]
    if short := _falls_short(settings, step, epoch):
        notes.insert(0, short)
    env_steps = max((line["env_steps"] for line in lines if type(line.get("env_steps")) is int), default=None)
    return Run(folder, settings, curves, results, step, epoch, max(times, default=None), tuple(notes), env_steps)


def is_evaluation(key: str) -> bool:
    """eval/<split>/<metric>"""
    return key.startswith("eval/") and key.count("/") == 2


def _read_settings(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{str(file)!r} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{str(file)!r} must be a mapping of keys to values; got {content!r}")
    for key in REQUIRED:
        if key not in content:
            raise ValueError(f"{str(file)!r} does not describe a run: the key {key!r} is missing")
    if type(content["seed"]) is not int:
        raise ValueError(f"{str(file)!r}: seed must be a whole number; got {content['seed']!r}")
    return content


def _read_lines(file: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """(the lines that are whole, what is wrong with the others)"""
    if not file.is_file():
        return [], [f"nothing is logged yet: there is no {METRICS}"]
    lines, broken, number = [], [], 0
    with file.open(encoding="utf-8", errors="replace") as stream:
        for number, text in enumerate(stream, 1):
            try:
                line = json.loads(text)
            except (json.JSONDecodeError, RecursionError):
                line = None
            if isinstance(line, dict) and type(line.get("step")) is int:
                lines.append(line)
            elif text.strip():
                broken.append(number)
    notes = []
    if broken and broken[-1] == number:
        broken.pop()
        notes.append(f"the last line of {METRICS} is cut off and left out")
    if broken:
        notes.append(f"{len(broken)} lines of {METRICS} cannot be read and are left out, the first is line {broken[0]}")
    if not lines:
        notes.append(f"nothing is logged yet: {METRICS} has no whole line")
    return lines, notes


def _curves(lines: Iterable[Mapping[str, Any]]) -> dict[str, list[Point]]:
    """By step; where a step was logged twice, as after a resumption, the later line counts."""
    found: dict[str, dict[int, Point]] = {}
    for line in lines:
        time_s = float(line["time_s"]) if _is_number(line.get("time_s")) else None
        env_steps = line["env_steps"] if type(line.get("env_steps")) is int else None
        for key, value in line.items():
            estimate = _estimate(value) if key not in PLACES else None
            if estimate is not None:
                found.setdefault(key, {})[line["step"]] = Point(line["step"], time_s, estimate, env_steps)
    return {key: [points[step] for step in sorted(points)] for key, points in found.items()}


def _read_evaluation(file: Path) -> tuple[dict[tuple[str, str], Estimate], str]:
    """(the final evaluation, why there is none)"""
    if not file.is_file():
        return {}, "no final evaluation yet"
    try:
        splits = json.loads(file.read_text(encoding="utf-8"))["splits"]
        found = {
            (str(split), str(metric)): _estimate(value)
            for split, metrics in splits.items()
            for metric, value in metrics.items()
        }
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return {}, f"{EVALUATION} cannot be read"
    whole = {key: value for key, value in found.items() if value is not None}
    return (whole, "") if whole else ({}, f"{EVALUATION} holds no values")


def _estimate(value: Any) -> Estimate | None:
    """None for what is no finite number, nor a mapping with one as its mean."""
    if _is_number(value):
        return Estimate(float(value), float(value), float(value))
    if not isinstance(value, Mapping) or not _is_number(value.get("mean")):
        return None
    mean = float(value["mean"])
    low, high = (float(value[key]) if _is_number(value.get(key)) else mean for key in ("low", "high"))
    number = value.get("num_episodes")
    return Estimate(mean, low, high, number if type(number) is int else None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _falls_short(settings: Mapping[str, Any], step: int, epoch: float | None) -> str:
    """Compares with what was asked for, where `experiment.yaml` says it: at the top, or one level down."""
    asked = [settings, *(part for part in settings.values() if isinstance(part, Mapping))]
    steps = next((part["num_steps"] for part in asked if _is_number(part.get("num_steps"))), None)
    epochs = next((part["num_epochs"] for part in asked if _is_number(part.get("num_epochs"))), None)
    if steps is not None:
        return f"training stands at step {step} of {steps}" if step < steps else ""
    if epochs is not None and epoch is not None:
        return f"training stands at epoch {epoch:.4g} of {epochs}" if epoch < epochs - 1e-6 else ""
    return ""
