"""The trees below the roots of a robot, and the node of each joint, site and geom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import listing, unknown

WORLD = "world"
"""Name of the body that holds all others; as a root, it stands for the whole file."""


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
    """The nodes below the roots, and the node of each joint, site and geom."""

    roots: tuple[str, ...]
    nodes: dict[str, str | None] = field(default_factory=dict)
    """Node -> parent node."""
    bodies: dict[str, str] = field(default_factory=dict)
    joints: dict[str, str] = field(default_factory=dict)
    sites: dict[str, str] = field(default_factory=dict)
    geoms: dict[str, str] = field(default_factory=dict)
    floating: list[str] = field(default_factory=list)
    """Nodes that move freely in the world."""
    outside: dict[str, set[str]] = field(default_factory=lambda: {"body": set(), "joint": set(), "site": set()})
    """Names in the file that are not below a root."""

    @classmethod
    def grow(cls, bodies: Sequence[Body], roots: tuple[str, ...], merge: bool) -> Tree:
        """Place each body that is below a root; with `merge`, a body without a joint is a part of its parent's node."""
        tree = cls(roots)
        carried: list[bool] = []  # whether the body or one above it moves freely
        for body in bodies:
            carried.append(body.floats or (body.parent is not None and carried[body.parent]))
            parent = None if body.parent is None else tree.bodies.get(bodies[body.parent].name)
            if body.name in roots:
                if parent is not None:
                    raise ValueError(f"root body {body.name!r} is below another root, {tree.root_of(parent)!r}")
                tree.floating += [body.name] * carried[-1]
            elif parent is None:
                tree.outside["body"].add(body.name)
                tree.outside["joint"].update(body.joints)
                tree.outside["site"].update(body.sites)
                continue
            elif body.floats:
                tree.floating.append(body.name)
            tree._place(body, parent, merge)
        return tree

    def _place(self, body: Body, parent: str | None, merge: bool) -> None:
        is_part = merge and parent is not None and not body.joints and not body.floats
        node = parent if is_part and parent is not None else body.name
        if node == body.name:
            self.nodes[node] = parent
        self.bodies[body.name] = node
        self.joints.update(dict.fromkeys(body.joints, node))
        self.sites.update(dict.fromkeys(body.sites, node))
        self.geoms.update(dict.fromkeys(body.geoms, node))

    def line(self, node: str) -> list[str]:
        """Return the node, its parent and so on to its root."""
        line, above = [node], self.nodes[node]
        while above is not None:
            line.append(above)
            above = self.nodes[above]
        return line

    def root_of(self, node: str) -> str:
        """Return the root above a node."""
        return self.line(node)[-1]

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
