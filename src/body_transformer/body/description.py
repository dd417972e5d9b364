"""Read the fields of a BodyGraph from a robot's description, MJCF or URDF.

`mujoco.MjSpec` parses without compiling, so meshes, textures and height fields may be missing and links may have no
mass. Do not read the `.parent` of a body here: on the world body it crashes the interpreter (mujoco 3.11.0).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import mujoco

from ..errors import listing, unknown

T = TypeVar("T")
Edge = tuple[str, str]
_JOINT_TYPES: dict[Any, str] = {
    mujoco.mjtJoint.mjJNT_HINGE: "hinge",
    mujoco.mjtJoint.mjJNT_SLIDE: "slide",
    mujoco.mjtJoint.mjJNT_BALL: "ball",
    mujoco.mjtJoint.mjJNT_FREE: "free",
}
_TRN = mujoco.mjtTrn
_WRAP = mujoco.mjtWrap
_EQ = mujoco.mjtEq


def parse(source: Mapping[str, str], name: str) -> mujoco.MjSpec:
    """Parse `{"path": …}` or `{"text": …}`; error messages call the source `name`."""
    if "text" in source:
        return _parsed(lambda: mujoco.MjSpec.from_string(source["text"]), name)
    path = os.path.abspath(source["path"])  # MuJoCo does not resolve nested includes from a relative path
    if not os.path.exists(path):
        raise FileNotFoundError(f"no robot file at {name}; give an MJCF (.xml) or URDF (.urdf) file")
    if not os.path.isfile(path):
        raise ValueError(f"{name} is not a file; give an MJCF (.xml) or URDF (.urdf) file")
    return _parsed(lambda: _parse_file(path), name)


def _parse_file(path: str) -> mujoco.MjSpec:
    folder, file = os.path.split(path)
    if file.endswith((".xml", ".urdf")):
        return mujoco.MjSpec.from_file(path)
    os.chdir(folder)  # MuJoCo chooses the parser by suffix; in a text, includes are relative to the working folder
    with open(path, encoding="utf-8") as stream:
        return mujoco.MjSpec.from_string(stream.read())


class BrokenParserError(ValueError):
    """The file is refused, and MuJoCo 3.11 may hang on the next one."""


def _parsed(parse: Callable[[], T], name: str) -> T:
    try:
        return parse()
    except (ValueError, mujoco.FatalError) as error:
        # MuJoCo quotes the faulty part; if that is not UTF-8, the message is empty in Python 3.11.2 (not in 3.11.7)
        reason = " ".join(str(error).split()) or "it contains bytes that are not UTF-8 text"
        if malformed := re.search(r"Error=XML_\w+.*Line number=(\d+)", reason):
            reason = f"it is not well-formed XML (line {malformed[1]})"
        raise ValueError(f"{name} is not an MJCF or URDF description that MuJoCo can read: {reason}") from None
    except RuntimeError:
        raise BrokenParserError(f"{name} breaks MuJoCo's parser: it is malformed or huge") from None


def read_spec(
    spec: mujoco.MjSpec,
    name: str,
    root: str | None,
    fixed: str,
    extra_edges: Iterable[Edge],
    equality_edges: bool,
) -> dict[str, Any]:
    """Return the fields of a BodyGraph.

    Error messages call the source `name`; the other arguments are those of `BodyGraph.from_file`.
    """
    if fixed not in ("keep", "merge"):
        raise ValueError(unknown("value of fixed", fixed, ("keep", "merge")))
    try:
        bodies = _parsed(lambda: _read_bodies(spec), name)  # MuJoCo checks a URDF for repeated names only here
        top = _choose_root(bodies, root, name)
        tree = _Tree.grow(bodies, top, merge=fixed == "merge")
        tree.outside["body"].add("world")
        tree.outside["site"].update(site.name for site in spec.worldbody.sites)
        edges = [*extra_edges, *(_equalities(spec, tree) if equality_edges else ())]
        return {
            "nodes": list(tree.nodes),
            "edges": [(parent, node) for node, parent in tree.nodes.items() if parent is not None],
            "root": top.name,
            "extra_edges": _extra_edges(edges, tree),
            "joints": tree.joints,
            "joint_types": {name: kind for body in bodies for name, kind in body.joints.items() if name in tree.joints},
            "actuators": _actuators(spec, tree),
            "bodies": tree.bodies,
        }
    except UnicodeDecodeError:
        raise ValueError(f"{name} has a name that is not UTF-8 text") from None


@dataclass(frozen=True)
class _Body:
    """The parts of one body that the graph needs, by name."""

    name: str
    parent: int | None
    joints: dict[str, str]
    sites: list[str]
    geoms: list[str]


def _read_bodies(spec: mujoco.MjSpec) -> list[_Body]:
    """Return all bodies except the world, depth first as in the file: a parent comes before its children."""
    found: list[tuple[Any, int | None]] = []
    stack: list[tuple[Any, int | None]] = [(body, None) for body in reversed(spec.worldbody.bodies)]
    while stack:
        body, parent = stack.pop()
        stack.extend((child, len(found)) for child in reversed(body.bodies))
        found.append((body, parent))

    body_names = _fresh_names({body.name for body, _ in found})
    joint_names = _fresh_names({joint.name for body, _ in found for joint in body.joints})
    bodies = []
    for k, (body, parent) in enumerate(found):
        name = body.name or body_names(f"body_{k + 1}")  # k + 1 is its index in MuJoCo
        bodies.append(
            _Body(
                name=name,
                parent=parent,
                joints={
                    joint.name or joint_names(f"{name}_joint_{j + 1}"): _JOINT_TYPES[joint.type]
                    for j, joint in enumerate(body.joints)
                },
                sites=[site.name for site in body.sites if site.name],
                geoms=[geom.name for geom in body.geoms if geom.name],
            )
        )
    return bodies


def _fresh_names(taken: set[str]) -> Callable[[str], str]:
    """Return a function that returns a name, with underscores appended until it is unique."""

    def fresh(name: str) -> str:
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    return fresh


def _choose_root(bodies: list[_Body], root: str | None, name: str) -> _Body:
    if not bodies:
        raise ValueError(f"{name} has no body, so there is no graph")
    if root is not None:
        for body in bodies:
            if body.name == root:
                return body
        raise ValueError(f"{name}: " + unknown("root body", root, [body.name for body in bodies]))
    tops = [body for body in bodies if body.parent is None]
    if len(tops) > 1:
        names = listing(body.name for body in tops)
        raise ValueError(f"{name} has several top-level bodies; choose the robot's with root= (--root): {names}")
    return tops[0]


@dataclass
class _Tree:
    """The nodes below the root, and the node of each joint, site and geom."""

    nodes: dict[str, str | None] = field(default_factory=dict)
    """Node -> parent node."""
    bodies: dict[str, str] = field(default_factory=dict)
    joints: dict[str, str] = field(default_factory=dict)
    sites: dict[str, str] = field(default_factory=dict)
    geoms: dict[str, str] = field(default_factory=dict)
    outside: dict[str, set[str]] = field(default_factory=lambda: {"body": set(), "joint": set(), "site": set()})
    """Names in the file that are not below the root."""

    @classmethod
    def grow(cls, bodies: list[_Body], top: _Body, merge: bool) -> _Tree:
        tree = cls()
        for body in bodies:
            parent = None if body.parent is None else tree.bodies.get(bodies[body.parent].name)
            if body is not top and parent is None:
                tree.outside["body"].add(body.name)
                tree.outside["joint"].update(body.joints)
                tree.outside["site"].update(body.sites)
                continue
            node = parent if merge and not body.joints and parent is not None else body.name
            if node == body.name:
                tree.nodes[node] = parent
            tree.bodies[body.name] = node
            tree.joints.update(dict.fromkeys(body.joints, node))
            tree.sites.update(dict.fromkeys(body.sites, node))
            tree.geoms.update(dict.fromkeys(body.geoms, node))
        return tree

    def lowest_common_ancestor(self, nodes: Iterable[str]) -> str | None:
        """Return the deepest node that contains all of these in its subtree, or None without nodes."""
        common: list[str] | None = None
        for node in nodes:
            line, above = [node], self.nodes[node]
            while above is not None:
                line.append(above)
                above = self.nodes[above]
            common = line if common is None else [name for name in common if name in line]
        return common[0] if common else None


def _actuators(spec: mujoco.MjSpec, tree: _Tree) -> dict[str, str]:
    """Return the node of each actuator that acts on the tree.

    A joint's actuator belongs to the node that the joint moves. An actuator of a site or body belongs to its node, and
    one of a tendon to the lowest common ancestor of all nodes along the tendon.
    """
    actuators = list(spec.actuators)
    fresh = _fresh_names({actuator.name for actuator in actuators})
    tendons = {tendon.name: tendon for tendon in spec.tendons}
    targets = {
        _TRN.mjTRN_JOINT: ("joint", tree.joints),
        _TRN.mjTRN_JOINTINPARENT: ("joint", tree.joints),
        _TRN.mjTRN_SLIDERCRANK: ("site", tree.sites),  # the target is the crank's site
        _TRN.mjTRN_SITE: ("site", tree.sites),
        _TRN.mjTRN_BODY: ("body", tree.bodies),
    }
    placed: dict[str, str] = {}
    for k, actuator in enumerate(actuators):
        name = actuator.name or fresh(f"actuator_{k}")
        owner = f"actuator {name!r}"
        if actuator.trntype == _TRN.mjTRN_TENDON:
            node = _tendon_node(tendons, actuator.target, tree, owner)
        elif actuator.trntype in targets:
            node = _place(*targets[actuator.trntype], actuator.target, tree, owner)
        else:
            raise ValueError(f"{owner} has no target; give it a joint, tendon, site or body")
        if node is not None:
            placed[name] = node
    return placed


def _place(kind: str, places: dict[str, str], target: str, tree: _Tree, owner: str) -> str | None:
    """Return the node of a joint, site or body, or None if it is in another tree."""
    if target in places:
        return places[target]
    if target in tree.outside[kind]:
        return None
    raise ValueError(f"{owner}: " + unknown(kind, target, [*places, *sorted(tree.outside[kind])]))


def _tendon_node(tendons: dict[str, Any], name: str, tree: _Tree, owner: str) -> str | None:
    if name not in tendons:
        raise ValueError(f"{owner}: " + unknown("tendon", name, tendons))
    places = {_WRAP.mjWRAP_JOINT: tree.joints, _WRAP.mjWRAP_SITE: tree.sites}
    nodes = []
    for wrap in tendons[name].path:
        if wrap.type == _WRAP.mjWRAP_PULLEY:
            continue
        if wrap.target is None:
            raise ValueError(f"{owner}: tendon {name!r} runs over a joint, site or geom that does not exist")
        # wrapping spheres and cylinders are geoms; a target in the world or in another tree has no node here
        node = places.get(wrap.type, tree.geoms).get(wrap.target.name)
        if node is not None:
            nodes.append(node)
    return tree.lowest_common_ancestor(nodes)


def _equalities(spec: mujoco.MjSpec, tree: _Tree) -> Iterator[Edge]:
    """Yield the pairs of nodes that an active `connect` or `weld` constraint joins."""
    for k, equality in enumerate(spec.equalities):
        if equality.type not in (_EQ.mjEQ_CONNECT, _EQ.mjEQ_WELD) or not equality.active:
            continue
        by_site = equality.objtype == mujoco.mjtObj.mjOBJ_SITE
        kind, places = ("site", tree.sites) if by_site else ("body", tree.bodies)
        owner = f"equality {equality.name or k!r}"
        ends = [_place(kind, places, name or "world", tree, owner) for name in (equality.name1, equality.name2)]
        if ends[0] is not None and ends[1] is not None and ends[0] != ends[1]:
            yield ends[0], ends[1]


def _extra_edges(edges: Iterable[Edge], tree: _Tree) -> tuple[Edge, ...]:
    """Return edges between bodies as edges between nodes, without those of the tree."""
    extra: dict[frozenset[str], Edge] = {}
    for a, b in edges:
        for name in (a, b):
            if name not in tree.bodies:
                raise ValueError(f"extra edge ({a!r}, {b!r}): " + unknown("body", name, tree.bodies))
        ends = (tree.bodies[a], tree.bodies[b])
        if ends[0] == ends[1]:
            raise ValueError(f"extra edge ({a!r}, {b!r}) joins node {ends[0]!r} to itself")
        if tree.nodes[ends[0]] != ends[1] and tree.nodes[ends[1]] != ends[0]:
            extra.setdefault(frozenset(ends), ends)
    return tuple(extra.values())
