"""Study: a table or figure of the paper, and the runs that it needs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from ..errors import unknown
from ..training.jobs import Planned

Statistic = Literal["maximum-and-mean", "mean", "last-ten", "curves"]
"""How evaluations are summed up; `curves` shows all of them, and the last in the table."""
PARAMETERS = "parameters"
"""As an arm's x: the policy's number of parameters."""

SEED = "seed"
"""As a flag's value: the run's seed."""


@dataclass(frozen=True)
class Arm:
    """A row of a table, or a point of a curve."""

    label: str
    """The row's or the curve's name."""
    experiment: str
    variant: str
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Of `bot train`, where they differ from the experiment's numbers."""
    x: float | str | None = None
    """Where the point lies, in a figure."""
    panel: str = ""
    """The part of the figure that it belongs to; of learning curves, each experiment is one."""
    against: str | None = None
    """Label of the arm that it is set against: the same colour, dotted."""
    paper: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    """Metric -> split -> the paper's maximum, mean and standard deviation."""

    @property
    def slug(self) -> str:
        """The run's folder, the same in every study that needs it."""
        words = [key.split(".")[-1] + ("" if value is True else f"={value}") for key, value in self.flags.items()]
        return re.sub(r"[^\w.=,-]", "_", ",".join([self.variant, *words]))


@dataclass(frozen=True)
class Study:
    """What is compared, and how it is summed up."""

    name: str
    title: str
    statistic: Statistic
    seeds: int
    metrics: tuple[str, ...]
    splits: tuple[str, ...]
    arms: tuple[Arm, ...]
    x: str | None = None
    """What the horizontal axis of the figure is; none for a table."""
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Of every `bot train`: what changes nothing but the work, such as leaving out evaluations nobody asks for."""

    def __post_init__(self) -> None:
        if self.statistic not in get_args(Statistic):
            raise ValueError(unknown("statistic", self.statistic, get_args(Statistic)))

    def runs(self, out: Path, num_seeds: int, more: Sequence[str], only: Sequence[str] = ()) -> list[Planned]:
        """Every run that it needs, or those of some arms; `more` are further arguments of each `bot train`."""
        self._check_more(more)
        planned = {}
        for arm in self.chosen(only):
            for seed in range(num_seeds):
                folder = run_folder(out, arm, seed)
                flags = {**self.flags, **arm.flags}.items()
                words = [word for key, value in flags for word in as_words(key, seed if value == SEED else value)]
                args = (arm.experiment, "--variant", arm.variant, "--seed", str(seed), *words, *more)
                planned[folder] = Planned(folder, args, f"{arm.experiment} {arm.slug} seed {seed}")
        return list(planned.values())

    def chosen(self, only: Sequence[str]) -> list[Arm]:
        """The arms of EXPERIMENT, or EXPERIMENT/LABEL; all if none is named."""
        names = {id(arm): (arm.experiment, f"{arm.experiment}/{arm.label}", arm.label) for arm in self.arms}
        for name in only:
            known = list(dict.fromkeys(known for arm in self.arms for known in names[id(arm)]))
            if name not in known:
                raise ValueError(unknown("experiment or arm", name, known))
        return [arm for arm in self.arms if not only or not set(only).isdisjoint(names[id(arm)])]

    def _check_more(self, more: Sequence[str]) -> None:
        """What sets the arms apart is not for all of them, and what is never evaluated cannot be drawn."""
        own = {"variant", "seed", "out", "label", "resume", "no-eval", *(key for arm in self.arms for key in arm.flags)}
        for word in more:
            flag = word.removeprefix("--").split("=")[0].replace("_", "-").replace(".no-", ".")
            if word.startswith("--") and flag in own:
                raise ValueError(f"--{flag} cannot be set for all runs of {self.name!r}: each has its own")


def as_words(key: str, value: Any) -> tuple[str, ...]:
    """A flag of the command line; one that is on or off has no value."""
    if isinstance(value, bool):
        *parts, name = key.split(".")
        return ("--" + ".".join([*parts, name if value else f"no-{name}"]),)
    return f"--{key}", str(value)


def run_folder(out: Path, arm: Arm, seed: int) -> Path:
    return out / arm.experiment / arm.slug / f"seed{seed}"


def study_names() -> list[str]:
    return sorted(entry.name.removesuffix(".yaml") for entry in _folder().iterdir() if entry.name.endswith(".yaml"))


def load_study(name: str) -> Study:
    if name not in study_names():
        raise ValueError(unknown("table or figure", name, study_names()))
    data = yaml.safe_load(_folder().joinpath(f"{name}.yaml").read_text(encoding="utf-8"))
    known = [item.name for item in fields(Arm)]
    for arm in data["arms"]:
        for key in arm:
            if key not in known:
                raise ValueError(f"study {name!r}: " + unknown("key", key, known))
    arms = tuple(Arm(**arm) for arm in data.pop("arms"))
    metrics, splits = tuple(data.pop("metrics")), tuple(data.pop("splits"))
    return Study(name=name, arms=arms, metrics=metrics, splits=splits, **data)


def _folder() -> Any:
    return files(__package__).joinpath("studies")
