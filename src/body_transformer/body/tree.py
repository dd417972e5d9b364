"""The trees below the roots of a robot, and the nodes of joints, sites, geoms, actuators and constraints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import mujoco

from ..errors import listing, unknown
from .forest import Edge

WORLD = "world"
"""Name of the body that holds all others; as a root, it stands for the whole file."""

_TRN = mujoco.mjtTrn
_EQ = mujoco.mjtEq
_WRAP = mujoco.mjtWrap
_JOINT_TRANSMISSIONS = (_TRN.mjTRN_JOINT, _TRN.mjTRN_JOINTINPARENT)
_TARGETS: dict[Any, str] = {
    **dict.fromkeys(_JOINT_TRANSMISSIONS, "joint"),
    _TRN.mjTRN_SLIDERCRANK: "site",  # that of the crank
    _TRN.mjTRN_SITE: "site",
    _TRN.mjTRN_BODY: "body",
}
"""Kind of the part that an actuator acts on, without tendons."""
_WRAPPED: dict[Any, str] = {_WRAP.mjWRAP_JOINT: "joint", _WRAP.mjWRAP_SITE: "site"}
"""Kind of the part that a tendon runs over; spheres and cylinders are geoms."""


@dataclass(frozen=True)
class Body:
    """The parts of one body that the graph needs, by name."""

    name: str
    parent: int | None
    """Index of the parent; the world has none."""
    joints: dict[str, str]
    """Joint -> its type."""
    sites: list[str]
    geoms: list[str]
    floats: bool = False
    """Whether it moves freely in the world."""


def choose_roots(bodies: Sequence[Body], root: str | Sequence[str] | None, name: str) -> tuple[str, ...]:
    """Return the roots that the user chose, or the only top-level body; `bodies` start with the world."""
    tops = [body.name for body in bodies if body.parent == 0]
    if not tops:
        raise ValueError(f"{name} has no body, so there is no graph")
    if root is None:
        if len(tops) > 1:
            raise ValueError(
                f"{name} has several top-level bodies; choose the robot's with root= (--root): {listing(tops)}, "
                f"several of them, or {WORLD!r} for all"
            )
        return tuple(tops)
    roots = (root,) if isinstance(root, str) else tuple(root)
    if not roots:
        raise ValueError(f"{name}: root must name at least one body; got an empty list")
    known = [body.name for body in (*bodies[1:], bodies[0])]
    for k, one in enumerate(roots):
        if one not in known:
            raise ValueError(f"{name}: " + unknown("root body", one, known))
        if one in roots[:k]:
            raise ValueError(f"{name}: root body {one!r} is given twice")
    return roots


@dataclass
class Tree:
    """The nodes below the roots, and the parts of each."""

    roots: tuple[str, ...]
    nodes: dict[str, str | None] = field(default_factory=dict)
    """Node -> parent node."""
    places: dict[str, dict[str, str | None]] = field(
        default_factory=lambda: {"body": {}, "joint": {}, "site": {}, "geom": {}}
    )
    """Kind -> name -> node of each part in the file; None for parts that are not below a root."""
    floating: list[str] = field(default_factory=list)
    """Nodes that move freely in the world."""

    @classmethod
    def grow(cls, bodies: Sequence[Body], roots: tuple[str, ...], merge: bool) -> Tree:
        """Place each body that is below a root; with `merge`, a body without a joint is a part of its parent's node."""
        tree = cls(roots)
        carried: list[bool] = []  # whether the body or one above it moves freely
        for body in bodies:
            carried.append(body.floats or (body.parent is not None and carried[body.parent]))
            parent = None if body.parent is None else tree.places["body"][bodies[body.parent].name]
            is_root = body.name in roots
            if is_root and parent is not None:
                raise ValueError(f"root body {body.name!r} is below another root, {tree.line(parent)[-1]!r}")
            if (is_root and carried[-1]) or (parent is not None and body.floats):
                tree.floating.append(body.name)
            is_fixed = not body.joints and not body.floats
            node = body.name if is_root or (parent is not None and not (merge and is_fixed)) else parent
            if node == body.name:
                tree.nodes[node] = parent
            parts = {"body": [body.name], "joint": body.joints, "site": body.sites, "geom": body.geoms}
            for kind, names in parts.items():
                tree.places[kind].update(dict.fromkeys(names, node))
        return tree

    def inside(self, kind: str) -> dict[str, str]:
        """Return the node of each part of a kind that is below a root."""
        return {name: node for name, node in self.places[kind].items() if node is not None}

    def place(self, kind: str, name: str, owner: str) -> str | None:
        """Return the node of a part that `owner` names, or None if the part is not below a root."""
        places = self.places[kind]
        if name not in places:
            have = sorted(places, key=lambda one: places[one] is None)  # those below a root come first
            raise ValueError(f"{owner}: " + unknown(kind, name, have))
        return places[name]

    def line(self, node: str) -> list[str]:
        """Return the node, its parent and so on to its root."""
        line, above = [node], self.nodes[node]
        while above is not None:
            line.append(above)
            above = self.nodes[above]
        return line

    def lowest_common_ancestor(self, nodes: Iterable[str]) -> str | None:
        """Return the deepest node that contains all of these in its subtree, or None without nodes.

        Nodes of several trees have the first root in common.
        """
        common: list[str] | None = None
        for node in nodes:
            line = dict.fromkeys([*self.line(node), self.roots[0]])
            common = list(line) if common is None else [name for name in common if name in line]
        return common[0] if common else None


def fresh_names(taken: set[str]) -> Callable[[str], str]:
    """Return a function that returns a name, with underscores appended until it is unique."""

    def fresh(name: str) -> str:
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    return fresh


# -- actuators and constraints -----------------------------------------------------------------------------------------


def actuators(spec: mujoco.MjSpec, tree: Tree) -> dict[str, str]:
    """Return the node of each actuator that acts on a tree.

    A joint's actuator belongs to the node that the joint moves. An actuator of a site or body belongs to its node. An
    actuator of a tendon belongs to the lowest common ancestor of all nodes along the tendon.
    """
    fresh = fresh_names({actuator.name for actuator in spec.actuators})
    tendons = {tendon.name: tendon for tendon in spec.tendons}
    placed: dict[str, str] = {}
    for k, actuator in enumerate(spec.actuators):
        name = actuator.name or fresh(f"actuator_{k}")
        owner = f"actuator {name!r}"
        if actuator.trntype == _TRN.mjTRN_TENDON:
            node = _tendon_node(tendons, actuator.target, tree, owner)
        elif actuator.trntype in _TARGETS:
            node = tree.place(_TARGETS[actuator.trntype], actuator.target, owner)
        else:
            raise ValueError(f"{owner} has no target; give it a joint, tendon, site or body")
        if node is not None:
            placed[name] = node
    return placed


def _tendon_node(tendons: dict[str, Any], name: str, tree: Tree, owner: str) -> str | None:
    if name not in tendons:
        raise ValueError(f"{owner}: " + unknown("tendon", name, tendons))
    nodes = []
    for wrap in tendons[name].path:
        if wrap.type == _WRAP.mjWRAP_PULLEY:
            continue
        if wrap.target is None:
            raise ValueError(f"{owner}: tendon {name!r} runs over a joint, site or geom that does not exist")
        node = tree.places[_WRAPPED.get(wrap.type, "geom")].get(wrap.target.name)
        if node is not None:
            nodes.append(node)
    return tree.lowest_common_ancestor(nodes)


def equalities(spec: mujoco.MjSpec, tree: Tree) -> Iterator[Edge]:
    """Yield the pairs of nodes that an active `connect` or `weld` constraint joins."""
    for k, equality in enumerate(spec.equalities):
        if equality.type not in (_EQ.mjEQ_CONNECT, _EQ.mjEQ_WELD) or not equality.active:
            continue
        kind = "site" if equality.objtype == mujoco.mjtObj.mjOBJ_SITE else "body"
        owner = f"equality {equality.name or k!r}"
        ends = [tree.place(kind, name or WORLD, owner) for name in (equality.name1, equality.name2)]
        if ends[0] is not None and ends[1] is not None and ends[0] != ends[1]:
            yield ends[0], ends[1]


def mimics(spec: mujoco.MjSpec, urdf_mimics: Iterable[Edge], tree: Tree) -> dict[str, str]:
    """Return the joint that each follower follows, for the joints of the trees; `urdf_mimics` are those of a URDF.

    Of two joints that an active `joint` constraint couples, the second leads, or the first if it alone has an actuator.
    A follower of a follower follows the same leader.
    """
    driven = {actuator.target for actuator in spec.actuators if actuator.trntype in _JOINT_TRANSMISSIONS}
    joints, pairs = tree.places["joint"], list(urdf_mimics)
    for equality in spec.equalities:
        depends = any(equality.data[1:5])  # otherwise the constraint holds the first joint where it is
        if equality.type == _EQ.mjEQ_JOINT and equality.active and equality.name2 and depends:
            pair = (equality.name1, equality.name2)
            pairs.append(pair if equality.name2 in driven or equality.name1 not in driven else pair[::-1])
    leaders: dict[str, str] = {}
    for follower, leader in pairs:
        leader = leaders.get(leader, leader)
        if follower == leader or follower in leaders or None in (joints.get(follower), joints.get(leader)):
            continue  # a URDF's mimic joint may be fixed, and then MuJoCo has no such joint
        leaders = {name: leader if above == follower else above for name, above in leaders.items()} | {follower: leader}
    return leaders


def between_nodes(edges: Iterable[Edge], tree: Tree) -> tuple[Edge, ...]:
    """Return edges between bodies as edges between nodes, without those of the tree."""
    extra: dict[frozenset[str], Edge] = {}
    bodies = tree.inside("body")
    for a, b in edges:
        for name in (a, b):
            if name not in bodies:
                raise ValueError(f"extra edge ({a!r}, {b!r}): " + unknown("body", name, bodies))
        ends = (bodies[a], bodies[b])
        if ends[0] == ends[1]:
            raise ValueError(f"extra edge ({a!r}, {b!r}) joins node {ends[0]!r} to itself")
        are_roots = set(ends) <= set(tree.roots)
        if not are_roots and tree.nodes[ends[0]] != ends[1] and tree.nodes[ends[1]] != ends[0]:
            extra.setdefault(frozenset(ends), ends)
    return tuple(extra.values())
