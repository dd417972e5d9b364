"""Checks of the names and edges of a BodyGraph, and the direction of its edges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import listing, repeated, unknown

Edge = tuple[str, str]
MAX_NODES = 2048
"""Largest number of nodes; the policy's masks have its square."""
MAX_WORK = 2**31
"""Largest product of the squared number of nodes and the number of extra edges."""


def pairs(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    edges = tuple(edges)
    for edge in edges:
        if not isinstance(edge, tuple | list) or len(edge) != 2 or not all(isinstance(name, str) for name in edge):
            raise ValueError(f"an edge is a pair of node names; got {edge!r}")
    return tuple((a, b) for a, b in edges)


def check_nodes(nodes: Sequence[str]) -> None:
    if not nodes:
        raise ValueError("a body graph needs at least one node; none was given")
    wrong = [name for name in nodes if not isinstance(name, str) or not name]
    if wrong:
        raise ValueError(f"node names must be non-empty strings; got {wrong[0]!r}")
    if twice := repeated(nodes):
        raise ValueError(f"node names must differ; given more than once: {listing(twice)}")


def check_graph_size(nodes: Sequence[str], extra_edges: Sequence[Edge]) -> None:
    """Refuse a graph whose distances between all pairs of nodes would take too long, or too much memory."""
    if len(nodes) > MAX_NODES:
        raise ValueError(f"a body graph may have at most {MAX_NODES:,} nodes; got {len(nodes):,}")
    limit = MAX_WORK // len(nodes) ** 2
    if len(extra_edges) > limit:
        raise ValueError(
            f"a body graph with {len(nodes):,} nodes may have at most {limit:,} extra edges; got {len(extra_edges):,}"
        )


def check_roots(nodes: Sequence[str], roots: Sequence[str]) -> None:
    if not roots:
        raise ValueError("a body graph needs at least one root; none was given")
    for root in roots:
        if root not in nodes:
            raise ValueError(unknown("root", root, nodes))
    if len(set(roots)) < len(roots):
        raise ValueError(f"roots must differ; got {listing(roots)}")


def check_edges(nodes: Sequence[str], edges: Iterable[Edge]) -> None:
    known = set(nodes)
    for a, b in edges:
        for name in (a, b):
            if name not in known:
                raise ValueError(f"edge ({a!r}, {b!r}): " + unknown("node", name, nodes))
        if a == b:
            raise ValueError(f"edge ({a!r}, {b!r}) joins a node to itself; every node attends to itself already")


def orient(nodes: Sequence[str], edges: Sequence[Edge], roots: Sequence[str]) -> tuple[Edge, ...]:
    """Return the edges as (parent, child) away from the roots, in the order of the children.

    They must form one tree per root.
    """
    neighbours: dict[str, list[str]] = {name: [] for name in nodes}
    for a, b in edges:
        neighbours[a].append(b)
        neighbours[b].append(a)
    parents: dict[str, str | None] = dict.fromkeys(roots)
    queue = list(roots)
    while queue:
        node = queue.pop()
        back = parents[node]
        for other in neighbours[node]:
            if other == back:
                back = None  # only one edge leads back; a second closes a loop of two
            elif other in parents:
                raise ValueError(
                    f"edges close a loop through {node!r} and {other!r}; the body must be a tree: "
                    "give the edge that closes it in extra_edges"
                )
            else:
                parents[other] = node
                queue.append(other)
    lost = [name for name in nodes if name not in parents]
    if lost:
        raise ValueError(f"edges do not connect {listing(lost)} to the {root_names(roots)}")
    return tuple((parent, name) for name in nodes if (parent := parents[name]) is not None)


def root_names(roots: Sequence[str]) -> str:
    """Return the roots as errors name them."""
    return f"root {roots[0]!r}" if len(roots) == 1 else f"roots {listing(roots)}"
