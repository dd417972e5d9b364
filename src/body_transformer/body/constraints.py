"""Actuators, equality constraints and mimic joints of a robot description, placed at the nodes of its trees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import mujoco

from ..errors import unknown
from .forest import Edge
from .tree import Tree, fresh_names
from .urdf import Urdf

_TRN = mujoco.mjtTrn
_WRAP = mujoco.mjtWrap
_EQ = mujoco.mjtEq
_JOINT_TRANSMISSIONS = (_TRN.mjTRN_JOINT, _TRN.mjTRN_JOINTINPARENT)


def actuators(spec: mujoco.MjSpec, tree: Tree) -> dict[str, str]:
    """Return the node of each actuator that acts on a tree.

    A joint's actuator belongs to the node that the joint moves. An actuator of a site or body belongs to its node, and
    one of a tendon to the lowest common ancestor of all nodes along the tendon.
    """
    fresh = fresh_names({actuator.name for actuator in spec.actuators})
    tendons = {tendon.name: tendon for tendon in spec.tendons}
    targets = {
        **dict.fromkeys(_JOINT_TRANSMISSIONS, ("joint", tree.joints)),
        _TRN.mjTRN_SLIDERCRANK: ("site", tree.sites),  # the target is the crank's site
        _TRN.mjTRN_SITE: ("site", tree.sites),
        _TRN.mjTRN_BODY: ("body", tree.bodies),
    }
    placed: dict[str, str] = {}
    for k, actuator in enumerate(spec.actuators):
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


def _place(kind: str, places: dict[str, str], target: str, tree: Tree, owner: str) -> str | None:
    """Return the node of a joint, site or body, or None if it is in another tree."""
    if target in places:
        return places[target]
    if target in tree.outside[kind]:
        return None
    raise ValueError(f"{owner}: " + unknown(kind, target, [*places, *sorted(tree.outside[kind])]))


def _tendon_node(tendons: dict[str, Any], name: str, tree: Tree, owner: str) -> str | None:
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


def equalities(spec: mujoco.MjSpec, tree: Tree) -> Iterator[Edge]:
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


def mimics(spec: mujoco.MjSpec, urdf: Urdf, tree: Tree) -> dict[str, str]:
    """Return the joint that each follower follows, for the joints of the trees.

    Of two joints that an active `joint` constraint couples, the second leads, or the first if it alone has an actuator.
    A follower of a follower follows the same leader.
    """
    driven = {actuator.target for actuator in spec.actuators if actuator.trntype in _JOINT_TRANSMISSIONS}
    pairs = list(urdf.mimics)
    for equality in spec.equalities:
        depends = any(equality.data[1:5])  # otherwise the constraint holds the first joint where it is
        if equality.type == _EQ.mjEQ_JOINT and equality.active and equality.name2 and depends:
            pair = (equality.name1, equality.name2)
            pairs.append(pair if equality.name2 in driven or equality.name1 not in driven else pair[::-1])
    leaders: dict[str, str] = {}
    for follower, leader in pairs:
        leader = leaders.get(leader, leader)
        if follower == leader or follower in leaders or not tree.joints.keys() >= {follower, leader}:
            continue  # a URDF's mimic joint may be fixed, and then MuJoCo has no such joint
        leaders = {name: leader if above == follower else above for name, above in leaders.items()} | {follower: leader}
    return leaders


def between_nodes(edges: Iterable[Edge], tree: Tree) -> tuple[Edge, ...]:
    """Return edges between bodies as edges between nodes, without those of the tree."""
    extra: dict[frozenset[str], Edge] = {}
    for a, b in edges:
        for name in (a, b):
            if name not in tree.bodies:
                raise ValueError(f"extra edge ({a!r}, {b!r}): " + unknown("body", name, tree.bodies))
        ends = (tree.bodies[a], tree.bodies[b])
        if ends[0] == ends[1]:
            raise ValueError(f"extra edge ({a!r}, {b!r}) joins node {ends[0]!r} to itself")
        are_roots = set(ends) <= set(tree.roots)
        if not are_roots and tree.nodes[ends[0]] != ends[1] and tree.nodes[ends[1]] != ends[0]:
            extra.setdefault(frozenset(ends), ends)
    return tuple(extra.values())
