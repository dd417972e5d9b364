"""Layout: the node that owns each entry of the flat observation and of the flat action."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from ..errors import listing, repeated, unknown
from ..schema import build, documented
from .graph import BodyGraph

Kind = Literal["root", "joints", "actuators", "bodies", "node", "unused"]
UNUSED = -1
"""Value in `Layout.obs_node_ids` for an entry that the policy does not read."""
MAX_ENTRIES = 2**20
"""Largest number of entries of an observation or action."""


@documented
@dataclass(frozen=True)
class Term:
    """A named run of consecutive entries, with the owner of each.

    Entries are ordered by step, then by owner, with `dim` consecutive entries per owner. The constructors `Term.root`,
    `Term.joints`, … are the readable way to make one.
    """

    name: str
    """Name, which no other term of the layout has."""
    kind: Kind
    """Kind of the owners."""
    of: tuple[str, ...] = ()
    """Owners: joints, actuators, bodies or one node; none for `root` and `unused`."""
    dim: int = 1
    """Entries per owner."""
    steps: int = 1
    """Repetitions of the whole term: steps of history, or of a future reference."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", tuple(self.of))
        if self.kind not in get_args(Kind):
            raise ValueError(f"term {self.name!r}: " + unknown("kind", self.kind, get_args(Kind)))
        for field in ("dim", "steps"):
            value = getattr(self, field)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
                raise ValueError(f"term {self.name!r}: {field} must be a whole number from 1 up; got {value!r}")
            object.__setattr__(self, field, int(value))
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"a term needs a name; got {self.name!r}")
        if self.kind in ("root", "unused") and self.of:
            raise ValueError(f"term {self.name!r} of kind {self.kind!r} takes no owners; got {listing(self.of)}")
        if self.kind not in ("root", "unused") and not self.of:
            raise ValueError(f"term {self.name!r} of kind {self.kind!r} needs at least one owner; got none")
        if self.kind == "node" and len(self.of) != 1:
            raise ValueError(f"term {self.name!r} belongs to one node; got {listing(self.of)}")
        twice = repeated(self.of)
        if twice:
            raise ValueError(f"term {self.name!r} names {listing(twice)} more than once")
        if self.size > MAX_ENTRIES:
            raise ValueError(f"term {self.name!r} has {self.size:,} entries; the limit is {MAX_ENTRIES:,}")

    @classmethod
    def root(cls, name: str, dim: int, steps: int = 1) -> Term:
        """Make a term about the whole robot, which the root owns; of several roots, the first."""
        return cls(name, "root", (), dim, steps)

    @classmethod
    def joints(cls, name: str, joints: Iterable[str], dim: int = 1, steps: int = 1) -> Term:
        """Make a term with `dim` entries per joint; the node that the joint moves owns them."""
        return cls(name, "joints", _names(name, joints), dim, steps)

    @classmethod
    def actuators(cls, name: str, actuators: Iterable[str], dim: int = 1, steps: int = 1) -> Term:
        """Make a term with `dim` entries per actuator; the actuator's node owns them."""
        return cls(name, "actuators", _names(name, actuators), dim, steps)

    @classmethod
    def bodies(cls, name: str, bodies: Iterable[str], dim: int, steps: int = 1) -> Term:
        """Make a term with `dim` entries per body; a body merged into its parent counts as the parent."""
        return cls(name, "bodies", _names(name, bodies), dim, steps)

    @classmethod
    def node(cls, name: str, node: str, dim: int, steps: int = 1) -> Term:
        """Make a term that one named node owns."""
        return cls(name, "node", (node,), dim, steps)

    @classmethod
    def unused(cls, name: str, dim: int) -> Term:
        """Make a term whose entries are in the observation but not read by the policy."""
        return cls(name, "unused", (), dim)

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.steps * max(len(self.of), 1) * self.dim

    def entry_names(self) -> list[str]:
        """Return a name per entry: `joint_pos[knee]`, `contact[foot].2`, `gravity.0`, `history@1[knee]`."""
        return [
            self.name
            + (f"@{step}" if self.steps > 1 else "")
            + (f"[{owner}]" if owner else "")
            + (f".{k}" if self.dim > 1 else "")
            for step in range(self.steps)
            for owner in (self.of or ("",))
            for k in range(self.dim)
        ]

    def node_ids(self, graph: BodyGraph) -> npt.NDArray[np.int64]:
        """Return the index of the node that owns each entry, or UNUSED: [size]."""
        owners = np.array(self._owner_ids(graph), dtype=np.int64)
        return np.tile(np.repeat(owners, self.dim), self.steps)

    def _owner_ids(self, graph: BodyGraph) -> list[int]:
        if self.kind == "unused":
            return [UNUSED]
        if self.kind == "root":
            return [graph.index(graph.root)]
        kind, places = {
            "joints": ("joint", graph.joints),
            "actuators": ("actuator", graph.actuators),
            "bodies": ("body", graph.bodies),
            "node": ("node", graph.bodies),
        }[self.kind]
        for owner in self.of:
            if owner not in places:
                raise ValueError(f"term {self.name!r}: " + unknown(kind, owner, places))
        return [graph.index(places[owner]) for owner in self.of]

    def to_dict(self) -> dict[str, Any]:
        """Return the term as a JSON-serialisable dict."""
        data: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.of:
            data["of"] = list(self.of)
        return data | {"dim": self.dim, "steps": self.steps}


@documented
@dataclass(frozen=True)
class Layout:
    """The owners of a flat observation and action.

    Each entry of the observation has one node or is declared unused; each entry of the action has one node.
    """

    graph: BodyGraph
    """The robot's body."""
    obs: tuple[Term, ...]
    """Terms of the observation, in order."""
    actions: tuple[Term, ...]
    """Terms of the action, in order."""

    def __init__(
        self,
        graph: BodyGraph,
        obs: Term | Sequence[Term],
        actions: Term | Sequence[Term],
        obs_dim: int | None = None,
        action_dim: int | None = None,
    ) -> None:
        """Check the terms; `obs_dim` and `action_dim`, if given, are the sizes they must add up to."""
        object.__setattr__(self, "graph", graph)
        object.__setattr__(self, "obs", (obs,) if isinstance(obs, Term) else tuple(obs))
        object.__setattr__(self, "actions", (actions,) if isinstance(actions, Term) else tuple(actions))
        for what, terms, dim in (("observation", self.obs, obs_dim), ("action", self.actions, action_dim)):
            _check_terms(what, terms, dim)
            for term in terms:
                term.node_ids(graph)  # raises for an unknown owner
        unowned = [name for term in self.actions if term.kind == "unused" for name in term.entry_names()]
        if unowned:
            raise ValueError(f"every action needs a node; declared unused: {listing(unowned)}")

    @classmethod
    def proprioceptive(cls, graph: BodyGraph) -> Layout:
        """Return a layout that most robots can provide.

        The observation is gravity and turning rate at each floating base, and joint positions and velocities. There is
        one action per actuator or, if the file has no actuators, per hinge or slide joint. A joint that follows another
        one has no entry.
        """
        single = graph.independent_joints
        ball = [name for name, kind in graph.joint_types.items() if kind == "ball"]
        obs = _base_terms(graph)
        if single:
            obs += [Term.joints("joint_pos", single), Term.joints("joint_vel", single)]
        if ball:
            obs += [Term.joints("ball_quat", ball, 4), Term.joints("ball_vel", ball, 3)]
        if graph.actuators:
            return cls(graph, obs, Term.actuators("ctrl", graph.actuators))
        if not single:
            raise ValueError("this robot has neither actuators nor hinge or slide joints: there is nothing to control")
        return cls(graph, obs, Term.joints("ctrl", single))

    @property
    def obs_dim(self) -> int:
        return sum(term.size for term in self.obs)

    @property
    def used_obs_dim(self) -> int:
        """Number of observation entries that a node reads."""
        return int((self.obs_node_ids != UNUSED).sum())

    @property
    def action_dim(self) -> int:
        return sum(term.size for term in self.actions)

    @cached_property
    def obs_node_ids(self) -> npt.NDArray[np.int64]:
        """[O] Node of each observation entry, or UNUSED."""
        return _node_ids(self.obs, self.graph)

    @cached_property
    def action_node_ids(self) -> npt.NDArray[np.int64]:
        """[A] Node of each action."""
        return _node_ids(self.actions, self.graph)

    def obs_ids(self, node: str) -> list[int]:
        """Return the observation entries of a node, ascending."""
        return np.flatnonzero(self.obs_node_ids == self.graph.index(node)).tolist()

    def action_ids(self, node: str) -> list[int]:
        """Return the actions of a node, ascending."""
        return np.flatnonzero(self.action_node_ids == self.graph.index(node)).tolist()

    @cached_property
    def obs_slices(self) -> Mapping[str, slice]:
        """Term name -> its slice of the observation."""
        ends = np.cumsum([term.size for term in self.obs]).tolist()
        return {term.name: slice(end - term.size, end) for term, end in zip(self.obs, ends, strict=True)}

    def obs_names(self) -> list[str]:
        """Return a name per observation entry: [O]."""
        return [name for term in self.obs for name in term.entry_names()]

    def action_names(self) -> list[str]:
        """Return a name per action: [A]."""
        return [name for term in self.actions for name in term.entry_names()]

    def to_dict(self) -> dict[str, Any]:
        """Return the layout as a JSON-serialisable dict."""
        return {
            "graph": self.graph.to_dict(),
            "obs": [term.to_dict() for term in self.obs],
            "actions": [term.to_dict() for term in self.actions],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Layout:
        """Return the layout that `to_dict` wrote."""
        return build(cls, data, "layout")


def _base_terms(graph: BodyGraph) -> list[Term]:
    """Return gravity and turning rate of each floating base; a fixed base has none."""
    names = ("gravity", "angular_velocity") if graph.floating else ()
    if graph.floating == (graph.root,):
        return [Term.root(name, 3) for name in names]
    return [Term.bodies(name, graph.floating or (), 3) for name in names]


def _names(term: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names as a tuple; refuse a single string, which would be split into letters."""
    if isinstance(names, str):
        raise ValueError(f"term {term!r} needs a list of names; got the single string {names!r}")
    return tuple(names)


def _node_ids(terms: Sequence[Term], graph: BodyGraph) -> npt.NDArray[np.int64]:
    ids = np.concatenate([term.node_ids(graph) for term in terms])
    ids.setflags(write=False)
    return ids


def _check_terms(what: str, terms: Sequence[Term], dim: int | None) -> None:
    if not terms:
        raise ValueError(f"a layout needs at least one {what} term; got none")
    for term in terms:
        if not isinstance(term, Term):
            raise ValueError(f"{what} terms must be Terms; got {term!r}")
    twice = repeated(term.name for term in terms)
    if twice:
        raise ValueError(f"{what} terms must have different names; given more than once: {listing(twice)}")
    size = sum(term.size for term in terms)
    if size > MAX_ENTRIES:
        raise ValueError(f"the {what} has {size:,} entries; the limit is {MAX_ENTRIES:,}")
    if dim is None or size == dim:
        return
    if size < dim:
        raise ValueError(
            f"the {what} has {dim} entries and the terms cover {size}: entries {size} to {dim - 1} have no owner; "
            f"give them to a node{' or declare them Term.unused' if what == 'observation' else ''}"
        )
    over = [name for term in terms for name in term.entry_names()][dim:]
    raise ValueError(f"the {what} has {dim} entries and the terms cover {size}; beyond the end: {listing(over)}")
