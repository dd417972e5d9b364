"""Find and read run folders; unfinished and broken runs are read as far as possible, with notes on missing parts."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from ..deploy.saved_log import ARRAYS
from ..deploy.saved_log import DESCRIPTION as LOG
from ..documents import read_json
from ..policy_folder import find_policy, is_policy
from ..rl.config import with_current_names
from ..run import DESCRIPTION, EVALUATION, METRICS, PATHS, Run
from ..schema import build, is_number

FILMS = ("film.webp", "film.gif", "film.mp4")
REQUIRED = ("name", "variant", "seed")
STAMPS = ("step", "epoch", "time_s", "env_steps")
"""Keys of a line in `metrics.jsonl` that give its time, in several units."""

Paths = tuple[list[npt.NDArray[np.float64]], list[npt.NDArray[np.float64]]]
"""Walked and commanded paths of some robots, [T, 2] each: m ahead and m to the left of the start."""
FolderPath = str | os.PathLike[str]


@dataclass(frozen=True)
class ValueRange:
    """A logged number, the mean over episodes with its interval, or the mean over seeds with the lowest and highest."""

    mean: float
    low: float
    high: float
    num_episodes: int | None = None
    """Episodes per seed, if equal for all."""
    num_seeds: int = 1


@dataclass(frozen=True)
class LoggedPoint:
    """A value and the time of its logging."""

    step: int
    time_s: float | None
    """Training time until then, without evaluations."""
    value: ValueRange
    env_steps: int | None = None
    """Steps of all environments together, in reinforcement learning; a step is then an iteration of PPO."""


@dataclass(frozen=True)
class LoadedRun:
    """The content of a run folder."""

    folder: Path
    settings: Mapping[str, Any]
    """Content of `experiment.yaml`; settings of reinforcement learning have their current names."""
    curves: Mapping[str, Sequence[LoggedPoint]]
    """Points by step, per logged name."""
    results: Mapping[tuple[str, str], ValueRange]
    """Final evaluation by (split, metric); the last evaluations during training as long as there is none."""
    step: int
    """Last logged step."""
    time_s: float | None
    """Training time so far."""
    notes: tuple[str, ...] = ()
    """Missing and broken parts, in words; empty for a finished run."""
    env_steps: int | None = None
    """Environment steps so far, in reinforcement learning."""
    iteration_s: float | None = None
    """Median time per step, without the first step, which includes compilation."""
    paths: Paths | None = None
    """Paths of walking robots in the final evaluation."""

    @property
    def is_finished(self) -> bool:
        return not self.notes

    @property
    def is_evaluated(self) -> bool:
        """Whether the final evaluation, the last file that a run writes, is there."""
        return Run(self.folder).is_evaluated

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
    def num_parameters(self) -> int | None:
        number = self.settings.get("num_parameters")
        return number if type(number) is int else None

    @property
    def total_env_steps(self) -> int:
        """Environment steps of the complete training, in reinforcement learning."""
        rl = self.settings.get("rl", {})
        numbers = [rl.get(name) for name in ("max_iterations", "num_envs", "num_steps_per_env")]
        return math.prod(numbers) if all(type(number) is int for number in numbers) else 0

    @property
    def film(self) -> Path | None:
        return next((self.folder / name for name in FILMS if (self.folder / name).is_file()), None)


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """The keys of `experiment.yaml` that a page uses; the other ones may hold anything."""

    name: str
    variant: str
    seed: int
    title: str | None = None
    label: str | None = None
    command: str | None = None
    machine: str | None = None
    package_version: str | None = None
    git_commit: str | None = None
    rl: Mapping[str, Any] = field(default_factory=dict)


# -- find --------------------------------------------------------------------------------------------------------------


def find_folders(places: Iterable[FolderPath]) -> tuple[list[Path], list[Path]]:
    """Return the run folders and the folders of deployments at or below these folders, each once.

    Both together are an error, because they have different pages.
    """
    runs: dict[Path, Path] = {}
    logs: dict[Path, Path] = {}
    for place in places:
        found_runs, found_logs = _find_below(Path(place))
        if not found_runs and not found_logs:
            found_runs = [_run_of(place)]
        for folder in found_runs:
            runs.setdefault(folder.resolve(), folder)
        for folder in found_logs:
            logs.setdefault(folder.resolve(), folder)
    if not runs and not logs:
        raise ValueError("a report needs at least one run; got none")
    if runs and logs:
        run, log = (str(next(iter(found.values()))) for found in (runs, logs))
        raise ValueError(
            f"a page shows either runs or deployments, but {run!r} is a run and {log!r} is a deployment; "
            "write one page for each kind"
        )
    return list(runs.values()), list(logs.values())


def _find_below(top: Path) -> tuple[list[Path], list[Path]]:
    """Return the runs, and the logs of deployments outside runs, at or below a folder.

    An incomplete log is found only in `top` itself.
    """
    runs, logs = [], []
    for folder, below, files in os.walk(top):
        below.sort()
        if DESCRIPTION in files:
            runs.append(Path(folder))
        elif ARRAYS in files or (LOG in files and Path(folder) == top):
            logs.append(Path(folder))
        else:
            continue
        below.clear()  # neither holds other runs or logs
    return runs, logs


def _run_of(place: FolderPath) -> Path:
    """Return the run of a checkpoint; any other place without runs is an error."""
    name = os.fspath(place)
    if is_policy(place):
        run = find_policy(place).run
        if run is None:
            raise ValueError(f"{name!r} is a policy without its run: give a run's folder, which has {METRICS}")
        return run
    if not Path(place).exists():
        raise FileNotFoundError(f"no run in {name!r}: there is no such folder")
    raise ValueError(f"{name!r} contains neither a run ({DESCRIPTION}) nor a deployment ({LOG})")


# -- read --------------------------------------------------------------------------------------------------------------


def read_run(folder: Path) -> LoadedRun:
    """Read a run folder; only a missing or unusable `experiment.yaml` is an error."""
    settings = _read_settings(folder)
    lines, notes = _read_lines(Run(folder))
    curves = _curves(lines)
    step = max((line["step"] for line in lines), default=0)
    total = settings.get("num_steps")
    if is_number(total) and step < total:
        notes.insert(0, f"training is at step {step} of {total}")
    results, why_not = _read_evaluation(folder / EVALUATION)
    if why_not and _has_task(settings):
        ends = {tuple(key.split("/")[1:]): points[-1] for key, points in curves.items() if is_evaluation(key)}
        results = {(split, metric): point.value for (split, metric), point in ends.items()}
        shown = f"the values shown are those of step {min(p.step for p in ends.values())}" if ends else "no values yet"
        notes.append(f"{why_not}: {shown}")
    times = {line["step"]: line["time_s"] for line in lines if is_number(line.get("time_s"))}
    taken = [(times[to] - times[at]) / (to - at) for at, to in pairwise(sorted(times))]
    return LoadedRun(
        folder=folder,
        settings=settings,
        curves=curves,
        results=results,
        step=step,
        time_s=max(times.values(), default=None),
        paths=_read_paths(folder / PATHS, notes),
        notes=tuple(notes),
        env_steps=max((line["env_steps"] for line in lines if type(line.get("env_steps")) is int), default=None),
        iteration_s=median(taken) if taken else None,
    )


def _has_task(settings: Mapping[str, Any]) -> bool:
    """Return whether the run ends with an evaluation; imitation without a task has none."""
    imitation = settings.get("imitation")
    return not isinstance(imitation, Mapping) or imitation.get("task", "") is not None


def is_evaluation(key: str) -> bool:
    """Return whether a logged name is eval/<split>/<metric>."""
    return key.startswith("eval/") and key.count("/") == 2


def _read_settings(folder: Path) -> dict[str, Any]:
    content, file = Run(folder).description(), str(folder / DESCRIPTION)
    for key in REQUIRED:
        if key not in content:
            raise ValueError(f"{file!r} does not describe a run: the key {key!r} is missing")
    known = {item.name for item in fields(_Facts)}
    try:
        build(_Facts, {key: value for key, value in content.items() if key in known})
    except ValueError as error:
        raise ValueError(f"{file!r}: {error}") from None
    if "rl" in content:
        content["rl"] = with_current_names(content["rl"])
    return content


def _read_lines(run: Run) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the valid lines and notes on the others."""
    every = run.read_metrics()
    lines = [line for line in every if line is not None]
    broken = [number for number, line in enumerate(every, 1) if line is None]
    notes = []
    if broken and broken[-1] == len(every):
        broken.pop()
        notes.append(f"the last line of {METRICS} is cut off and left out")
    if broken:
        notes.append(f"{len(broken)} lines of {METRICS} cannot be read and are left out, the first is line {broken[0]}")
    if not lines:
        notes.append(f"nothing is logged yet: no complete line in {METRICS}")
    return lines, notes


def _curves(lines: Iterable[Mapping[str, Any]]) -> dict[str, list[LoggedPoint]]:
    """Return points by step. If a step was logged twice, as after resuming, the later line counts."""
    found: dict[str, dict[int, LoggedPoint]] = {}
    for line in lines:
        time_s = float(line["time_s"]) if is_number(line.get("time_s")) else None
        env_steps = line["env_steps"] if type(line.get("env_steps")) is int else None
        for key, content in line.items():
            if key not in STAMPS and (value := _value(content)) is not None:
                found.setdefault(key, {})[line["step"]] = LoggedPoint(line["step"], time_s, value, env_steps)
    return {key: [points[step] for step in sorted(points)] for key, points in found.items()}


def _read_evaluation(file: Path) -> tuple[dict[tuple[str, str], ValueRange], str]:
    """Return the final evaluation, or the reason why there is none."""
    if not file.is_file():
        return {}, "no final evaluation yet"
    try:
        splits = read_json(file, strict=False)["splits"]
        every = [(split, metric, _value(splits[split][metric])) for split in splits for metric in splits[split]]
    except (ValueError, KeyError, TypeError, IndexError):
        return {}, f"{EVALUATION} cannot be read"
    found = {(split, metric): value for split, metric, value in every if value is not None}
    return (found, "") if found else ({}, f"{EVALUATION} holds no values")


def _read_paths(file: Path, notes: list[str]) -> Paths | None:
    """Return the paths of walking robots, if there are any; note a file that cannot be read."""
    if not file.is_file():
        return None
    try:
        content = read_json(file, strict=False)
        walked, commanded = ([np.array(path, np.float64) for path in content[name]] for name in ("walked", "commanded"))
        if walked and all(one.ndim == 2 and one.shape[1] == 2 and np.isfinite(one).all() for one in walked + commanded):
            return walked, commanded
    except (ValueError, KeyError, TypeError):
        pass
    notes.append(f"{PATHS} cannot be read")
    return None


def _value(content: Any) -> ValueRange | None:
    """Return a finite number, or a mapping with a finite mean, as a value."""
    given = content if isinstance(content, Mapping) else {"mean": content}
    if not is_number(given.get("mean")):
        return None
    mean, low, high = (float(given[key if is_number(given.get(key)) else "mean"]) for key in ("mean", "low", "high"))
    number = given.get("num_episodes")
    return ValueRange(mean, low, high, number if type(number) is int else None)
