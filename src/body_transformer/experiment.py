"""Experiments: what is learned, on which robot, with which policy; read from `experiments/*.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from importlib.resources import files
from typing import Any

import yaml

from . import robots
from .body.graph import BodyGraph, Edge, Fixed
from .body.layout import Layout, Term
from .deploy.config import DeployConfig
from .errors import unknown
from .imitation.config import ImitationConfig
from .model.config import PolicyConfig
from .model.variants import VARIANTS
from .rl.config import RlConfig


@dataclass(frozen=True)
class RobotSpec:
    """Which file the body comes from, and how it is read."""

    file: str
    """A shipped robot's name."""
    root: str | None = None
    """The body to start from; needed where several trees stand in the world."""
    fixed: Fixed = "keep"
    """Whether bodies without a joint keep a node of their own or merge into their parent."""
    extra_edges: tuple[Edge, ...] = ()
    """Connections beside the tree."""

    def graph(self) -> BodyGraph:
        return BodyGraph.from_file(robots.path(self.file), self.root, self.fixed, self.extra_edges)


@dataclass(frozen=True)
class Experiment:
    """One experiment, resolved."""

    name: str
    """The name on the command line."""
    title: str
    """What it is, in a line."""
    robot: RobotSpec
    """The body."""
    obs_dim: int
    """Entries of the flat observation; the terms must add up to it."""
    obs: tuple[Term, ...]
    """The observation's terms, in order."""
    action_dim: int
    """Entries of the flat action; the terms must add up to it."""
    actions: tuple[Term, ...]
    """The action's terms, in order."""
    critic: bool
    """Whether training has a critic beside the policy: reinforcement learning does, imitation does not."""
    policy: PolicyConfig
    """The policy, with the variant that the paper favours here."""
    critic_obs: tuple[Term, ...] = ()
    """What the critic observes beyond the policy, after it."""
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What single variants set differently."""
    imitation: ImitationConfig | None = None
    """How it is learned from demonstrations, if it is."""
    rl: RlConfig | None = None
    """How it is learned by reinforcement, if it is."""
    deploy: DeployConfig | None = None
    """How a robot turns measurements into observations and actions into targets, if there is one."""

    def layout(self) -> Layout:
        return Layout(self.robot.graph(), self.obs, self.actions, self.obs_dim, self.action_dim)

    def critic_layout(self) -> Layout:
        """The layout of what the critic observes."""
        obs = (*self.obs, *self.critic_obs)
        return Layout(self.robot.graph(), obs, self.actions, action_dim=self.action_dim)

    def policy_config(self, variant: str | None = None) -> PolicyConfig:
        """The policy's configuration for a variant; without one, the experiment's own."""
        variant = variant or self.policy.variant
        if variant not in VARIANTS:
            raise ValueError(unknown("variant", variant, VARIANTS))
        return PolicyConfig.from_dict({**self.policy.to_dict(), **self.variants.get(variant, {}), "variant": variant})


def experiment_names() -> list[str]:
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in files(__package__).joinpath("experiments").iterdir()
        if entry.name.endswith(".yaml")
    )


def load_experiment(name: str) -> Experiment:
    """The experiment of that name, its base filled in."""
    data = _resolve(name) | {"name": name}
    try:
        _check(Experiment, data)
        _check(RobotSpec, data["robot"])
        experiment = Experiment(
            **data
            | {
                "robot": RobotSpec(**data["robot"]),
                "obs": tuple(Term.from_dict(term) for term in data["obs"]),
                "actions": tuple(Term.from_dict(term) for term in data["actions"]),
                "critic_obs": tuple(Term.from_dict(term) for term in data.get("critic_obs", ())),
                "policy": PolicyConfig.from_dict(data["policy"]),
                "imitation": ImitationConfig.from_dict(data["imitation"]) if "imitation" in data else None,
                "rl": RlConfig.from_dict(data["rl"]) if "rl" in data else None,
                "deploy": DeployConfig.from_dict(data["deploy"]) if "deploy" in data else None,
            }
        )
        for variant in experiment.variants:
            experiment.policy_config(variant)
    except ValueError as error:
        raise ValueError(f"experiment {name!r}: {error}") from None
    return experiment


_YAML_TYPES = {
    "str": str,
    "int": int,
    "bool": bool,
    "RobotSpec": dict,
    "PolicyConfig": dict,
    "ImitationConfig | None": dict,
    "RlConfig | None": dict,
    "DeployConfig | None": dict,
    "tuple": list,
    "Mapping": dict,
}


def _check(kind: type[Experiment] | type[RobotSpec], data: Mapping[str, Any]) -> None:
    """Every key is known and holds the right kind of value, and none is missing that has no default."""
    items = {item.name: item for item in fields(kind)}
    for key, value in data.items():
        if key not in items:
            raise ValueError(unknown("key", key, items))
        wanted = _YAML_TYPES.get(str(items[key].type).split("[")[0])
        if wanted and type(value) is not wanted:
            raise ValueError(f"{key} must be a {wanted.__name__}; got {value!r}")
    for item in items.values():
        if item.name not in data and item.default is MISSING and item.default_factory is MISSING:
            raise ValueError(f"the key {item.name!r} is missing")


def _resolve(name: str, for_whom: tuple[str, ...] = ()) -> dict[str, Any]:
    """The file's content over that of its base; `for_whom` are the experiments whose bases led here."""
    if name not in experiment_names():
        raise ValueError(unknown("experiment", name, experiment_names()))
    if name in for_whom:
        raise ValueError(f"experiments are each other's base: {' -> '.join((*for_whom, name))}")
    text = files(__package__).joinpath("experiments", f"{name}.yaml").read_text(encoding="utf-8")
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"experiment {name!r} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise ValueError(f"experiment {name!r} must be a mapping of keys to values; got {data!r}")
    base = data.pop("base", None)
    return data if base is None else _merged(_resolve(base, (*for_whom, name)), data)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings are merged key by key, everything else is replaced."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
