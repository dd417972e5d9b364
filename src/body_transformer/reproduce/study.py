"""A table or figure of the paper as data: the runs that it needs and how they are summarised."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..documents import yaml_mapping
from ..errors import unknown
from ..report.load import LoadedRun, read_run
from ..run import Run
from ..schema import build
from ..training.jobs import Planned

STUDIES = Path(__file__).parent / "studies"
Statistic = Literal["maximum-and-mean", "mean", "last-ten", "curves"]
"""How evaluations are summarised; `curves` draws all of them and lists the last."""
PARAMETERS = "parameters"
"""Value of an arm's `x` that stands for the policy's number of parameters."""
SEED = "seed"
"""Value of a flag that stands for the run's seed."""


@dataclass(frozen=True)
class Arm:
    """A row of a table, or a point of a curve."""

    label: str
    """Name of the row or the curve."""
    experiment: str
    variant: str
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Flags of `bot train` that differ from the experiment's settings."""
    x: float | str | None = None
    """Horizontal position in a figure."""
    panel: str = ""
    """Part of the figure; figures of learning curves have one per experiment instead."""
    against: str | None = None
    """Label of the arm that this one is compared with; both have the same colour, and this one is dotted."""
    paper: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    """The paper's maximum, mean and standard deviation, per metric and split."""

    @property
    def slug(self) -> str:
        """Name of the run's folder, the same in every study with this run."""
        words = [key.split(".")[-1] + ("" if value is True else f"={value}") for key, value in self.flags.items()]
        return re.sub(r"[^\w.=,-]", "_", ",".join([self.variant, *words]))


@dataclass(frozen=True)
class Study:
    """Compared arms and their summary."""

    name: str
    title: str
    statistic: Statistic
    seeds: int
    metrics: tuple[str, ...]
    splits: tuple[str, ...]
    arms: tuple[Arm, ...]
    first_seed: int = 0
    x: str | None = None
    """Name of the figure's horizontal axis; None for a table."""
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Flags of every `bot train` that save work without changing the results, such as fewer evaluations."""

    def runs(self, out: Path, num_seeds: int, more: Sequence[str], only: Sequence[str] = ()) -> list[Planned]:
        """Return the runs of all arms, or of those named in `only`.

        Args:
            more: further arguments of every `bot train`.
        """
        own = {"variant", "seed", "out", "label", "resume", "no-eval", *(key for arm in self.arms for key in arm.flags)}
        for word in more:
            flag = word.removeprefix("--").split("=")[0].replace("_", "-").replace(".no-", ".")
            if word.startswith("--") and flag in own:
                raise ValueError(
                    f"--{flag} cannot be set for all runs of {self.name!r}: the study sets it for each run"
                )
        found = {}
        for arm in self.chosen(only):
            for seed in self.seed_range(num_seeds):
                folder = run_folder(out, arm, seed)
                flags = {**self.flags, **arm.flags}.items()
                words = [word for key, value in flags for word in as_words(key, seed if value == SEED else value)]
                args = (arm.experiment, "--variant", arm.variant, "--seed", str(seed), *words, *more)
                found[folder] = Planned(folder, args, f"{arm.experiment} {arm.slug} seed {seed}")
        return list(found.values())

    def seed_range(self, num_seeds: int) -> range:
        """Return the seeds of an arm's runs."""
        return range(self.first_seed, self.first_seed + num_seeds)

    def chosen(self, only: Sequence[str]) -> list[Arm]:
        """Return the arms with these names, EXPERIMENT, LABEL or EXPERIMENT/LABEL; all arms for no name."""
        names = {id(arm): (arm.experiment, f"{arm.experiment}/{arm.label}", arm.label) for arm in self.arms}
        for name in only:
            known = list(dict.fromkeys(known for arm in self.arms for known in names[id(arm)]))
            if name not in known:
                raise ValueError(unknown("experiment or arm", name, known))
        return [arm for arm in self.arms if not only or not set(only).isdisjoint(names[id(arm)])]


ArmRuns = list[tuple[Arm, list[LoadedRun]]]
"""Each arm, with those of its runs that have begun."""


def read_study(study: Study, out: Path, num_seeds: int) -> ArmRuns:
    """Read the runs of every arm."""
    folders = [(arm, [run_folder(out, arm, seed) for seed in study.seed_range(num_seeds)]) for arm in study.arms]
    return [(arm, [read_run(folder) for folder in own if Run(folder).exists]) for arm, own in folders]


def as_words(key: str, value: Any) -> tuple[str, ...]:
    """Return a flag as words of the command line; a switch has no value."""
    if isinstance(value, bool):
        *parts, name = key.split(".")
        return ("--" + ".".join([*parts, name if value else f"no-{name}"]),)
    return f"--{key}", str(value)


def run_folder(out: Path, arm: Arm, seed: int) -> Path:
    """Return the folder of a run, which studies share."""
    return out / arm.experiment / arm.slug / f"seed{seed}"


def study_names() -> list[str]:
    """Return the names of all studies."""
    return sorted(file.stem for file in STUDIES.glob("*.yaml"))


def load_study(name: str) -> Study:
    """Load a study by its name."""
    if name not in study_names():
        raise ValueError(unknown("table or figure", name, study_names()))
    where = f"study {name!r}"
    data = yaml_mapping((STUDIES / f"{name}.yaml").read_bytes(), where)
    return build(Study, {"name": name, **data}, where)
