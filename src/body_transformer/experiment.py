"""Experiments: the task, the robot and the policy of a training, read from a YAML file.

Shipped experiments are in `experiments/*.yaml` and have the file's name. A file holds only the differences from its
`base`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from . import robots
from .body.forest import Edge
from .body.graph import BodyGraph, Fixed
from .body.layout import Layout, Term
from .body.outside import check_inside
from .deploy.config import DeployConfig
from .documents import yaml_mapping
from .errors import listing, unknown
from .imitation.config import ImitationConfig, named_task, without_other_options
from .model.config import PolicyConfig
from .model.variants import variant_name
from .policy_folder import RUN_DESCRIPTION
from .rl.config import RlConfig
from .schema import build, plain
from .size_limits import MAX_YAML_BYTES, read_at_most

SUFFIXES = (".yaml", ".yml")
"""Suffixes of experiment files; a source without one is the name of a shipped experiment."""
_OF_RUNS = "package_version"
"""Key that the description of a run has and an experiment does not."""


@dataclass(frozen=True)
class RobotSpec:
    """The file of the body, and how to read it."""

    file: str
    """Name of a shipped robot, or path of an MJCF or URDF file, relative to the experiment's own file."""
    root: str | tuple[str, ...] | None = None
    """The robot's root body, several of them, or `world` for the whole file; needed if the file holds several trees."""
    fixed: Fixed = "keep"
    """Whether a body without a joint keeps its own node or merges into its parent."""
    extra_edges: tuple[Edge, ...] = ()
    """Edges in addition to those of the tree."""
    allow_outside: bool = False
    """Allow the description to name files outside its folder: included ones, meshes, textures and the like."""

    def graph(self) -> BodyGraph:
        """Read the body graph."""
        return BodyGraph.from_file(self.path, self.root, self.fixed, self.extra_edges, allow_outside=self.allow_outside)

    def model_file(self) -> Path:
        """Return the robot's file, for MuJoCo to compile; its meshes must lie in its folder, unless that is allowed."""
        if not self.allow_outside:
            check_inside(self.path, repr(str(self.path)), assets=True)
        return self.path

    @property
    def path(self) -> Path:
        """The robot's file."""
        return Path(self.file) if self.is_path else robots.path(self.file)

    @property
    def is_path(self) -> bool:
        """Whether `file` is a path; else it is a shipped robot's name."""
        return Path(self.file).suffix in (".xml", ".urdf") or os.path.dirname(self.file) != ""


@dataclass(frozen=True)
class Experiment:
    """One experiment, with its base filled in."""

    name: str
    """Name on the command line; of a file, its name without the suffix."""
    title: str
    """Description in one line."""
    robot: RobotSpec
    """The body."""
    obs_dim: int
    """Entries of the flat observation; the terms must add up to it."""
    obs: tuple[Term, ...]
    """Terms of the observation, in order."""
    action_dim: int
    """Entries of the flat action; the terms must add up to it."""
    actions: tuple[Term, ...]
    """Terms of the action, in order."""
    critic: bool
    """Whether training has a critic: reinforcement learning does, imitation does not."""
    policy: PolicyConfig
    """The policy, with the variant that the paper favours for this task."""
    critic_obs: tuple[Term, ...] = ()
    """Terms that only the critic observes, after those of the policy."""
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Policy settings that differ for a variant, by its name."""
    imitation: ImitationConfig | None = None
    """Training from demonstrations, if the experiment has it."""
    rl: RlConfig | None = None
    """Training by reinforcement, if the experiment has it."""
    deploy: DeployConfig | None = None
    """Conversion of measurements to observations and of actions to targets, if the policy runs on a robot."""

    def layout(self) -> Layout:
        """Return the layout of the policy's observation and action."""
        return Layout(self.robot.graph(), self.obs, self.actions, self.obs_dim, self.action_dim)

    def describe_layout(self) -> dict[str, Any]:
        """Return robot, terms and sizes as plain data, as a file holds them."""
        return {
            "robot": {name: value for name, value in plain(self.robot).items() if value},
            "obs_dim": self.obs_dim,
            "obs": [term.to_dict() for term in self.obs],
            "action_dim": self.action_dim,
            "actions": [term.to_dict() for term in self.actions],
            "critic": self.critic,
        }

    def critic_layout(self) -> Layout:
        """Return the layout of the critic's observation."""
        obs = (*self.obs, *self.critic_obs)
        return Layout(self.robot.graph(), obs, self.actions, action_dim=self.action_dim)

    def policy_config(self, variant: str | None = None) -> PolicyConfig:
        """Return the policy's configuration for a variant, by default the experiment's own."""
        variant = variant_name(variant or self.policy.variant)
        settings = plain(self.policy) | {**self.variants.get(variant, {}), "variant": variant}
        return build(PolicyConfig, settings, "policy")


def experiment_names() -> list[str]:
    """Return the names of the shipped experiments, sorted."""
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in files(__package__).joinpath("experiments").iterdir()
        if entry.name.endswith(".yaml")
    )


def load_experiment(source: str | os.PathLike[str]) -> Experiment:
    """Read a shipped experiment by its name, an experiment's YAML file by its path, or that of a run by its folder."""
    source = _file_of_run(os.fspath(source))
    name = Path(source).stem if source.endswith(SUFFIXES) else source
    data = _resolve(source)
    if _OF_RUNS in data:
        return described_experiment(data)
    try:
        experiment = build(Experiment, data | {"name": name})
        for variant in experiment.variants:
            experiment.policy_config(variant)
    except ValueError as error:
        raise ValueError(f"experiment {source!r}: {error}") from None
    return _resolve_paths(Path(source), experiment) if source.endswith(SUFFIXES) else experiment


def described_experiment(found: Mapping[str, Any]) -> Experiment:
    """Return the experiment of a run, given the run's description.

    A run that was started from a robot's file and demonstrations holds its experiment itself.
    """
    if "robot" not in found:
        return load_experiment(found["name"])
    return build(Experiment, {item.name: found[item.name] for item in fields(Experiment) if item.name in found})


def code_file(source: str) -> str:
    """Return the file beside an experiment's modules: the experiment's own file or, for a run, the robot's."""
    source = _file_of_run(source)
    if not source.endswith(SUFFIXES):
        return source
    data = yaml_mapping(_content(source), f"experiment {source!r}")
    return str(data["robot"]["file"]) if _OF_RUNS in data and "robot" in data else source


def _file_of_run(source: str) -> str:
    """Return the description in a run's folder; other sources stay as they are."""
    file = Path(source) / RUN_DESCRIPTION
    return str(file) if file.is_file() else source


def _resolve_paths(file: Path, experiment: Experiment) -> Experiment:
    """Return the experiment of a file, with paths resolved against the file's folder."""
    if experiment.robot.is_path:
        robot = replace(experiment.robot, file=str(file.parent / experiment.robot.file))
        experiment = replace(experiment, robot=robot)
    config = experiment.imitation
    if config is not None and config.data is not None and (file.parent / config.data).exists():
        experiment = replace(experiment, imitation=replace(config, data=str(file.parent / config.data)))
    return experiment


def _resolve(source: str, below: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a file's content merged over its base's; `below` are the experiments based on it."""
    if source in below:
        raise ValueError(f"experiments are each other's base: {' -> '.join((*below, source))}")
    data = yaml_mapping(_content(source), f"experiment {source!r}")
    own = data.get("imitation")
    if isinstance(own, Mapping):
        data["imitation"] = own = named_task(own)
    base = data.pop("base", None)
    if base is None:
        return data
    if str(base).endswith(SUFFIXES):
        base = str(Path(source).parent / base)
    whole = _resolve(str(base), (*below, source))
    if isinstance(own, Mapping) and isinstance(whole.get("imitation"), Mapping):
        whole["imitation"] = without_other_options(whole["imitation"], own)
    return _merged(whole, data)


def _content(source: str) -> bytes:
    if source.endswith(SUFFIXES):
        if not Path(source).is_file():
            raise FileNotFoundError(f"no experiment at {source!r}; the shipped ones are {listing(experiment_names())}")
        return read_at_most(Path(source), MAX_YAML_BYTES, "a YAML file")
    if source not in experiment_names():
        raise ValueError(unknown("experiment", source, experiment_names()))
    return files(__package__).joinpath("experiments", f"{source}.yaml").read_bytes()


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge mappings key by key and replace everything else."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
