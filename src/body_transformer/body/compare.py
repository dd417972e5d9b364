"""Differences between two layouts; a policy with one layout cannot run with another."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import listing
from .layout import Layout, Term

Names = tuple[str, str]
"""Names of the two layouts in messages."""


def differences(ours: Layout, theirs: Layout, names: Names = ("policy", "task")) -> list[str]:
    """Describe each difference in nodes, edges, observations and actions in one line.

    Terms are compared by the owners of their entries. Terms of the root, of a body and of a node have the same owner if
    they name the same body.
    """
    bodies = _sets("nodes", ours.graph.nodes, theirs.graph.nodes, names)
    if set(ours.graph.nodes) == set(theirs.graph.nodes):  # for another robot, all edges and owners differ
        bodies += _values("root", repr(ours.graph.root), repr(theirs.graph.root), names)
        bodies += _sets("edges", _edges(ours), _edges(theirs), names)
    return [
        *bodies,
        *_terms("observation", ours, theirs, names, owners=not bodies),
        *_terms("action", ours, theirs, names, owners=not bodies),
    ]


def check_same(ours: Layout, theirs: Layout, names: Names = ("policy", "task")) -> None:
    """Raise an error that lists the differences, if there are any."""
    found = differences(ours, theirs, names)
    if found:
        raise ValueError(f"the {names[0]} does not fit the {names[1]}: {'; '.join(found)}")


def _sets(what: str, ours: Sequence[str], theirs: Sequence[str], names: Names) -> list[str]:
    """Return the names that only one of the two has or, if there are none, a difference in order."""
    found = [
        f"{what} that only the {name} has: {listing(only)}"
        for name, mine, other in ((names[0], ours, theirs), (names[1], theirs, ours))
        if (only := [one for one in mine if one not in other])
    ]
    if found or list(ours) == list(theirs):
        return found
    first = next(k for k, (mine, other) in enumerate(zip(ours, theirs, strict=True)) if mine != other)
    place = f"number {first + 1} is {ours[first]!r} for the {names[0]} and {theirs[first]!r} for the {names[1]}"
    return [f"{what} are in a different order: {place}"]


def _edges(layout: Layout) -> list[str]:
    return sorted("-".join(sorted(pair)) for pair in (*layout.graph.edges, *layout.graph.extra_edges))


def _terms(what: str, ours: Layout, theirs: Layout, names: Names, owners: bool) -> list[str]:
    """Compare sizes, names and order of observation or action terms and, if `owners`, the owners of their entries."""
    mine, other = (
        {term.name: term for term in (layout.obs if what == "observation" else layout.actions)}
        for layout in (ours, theirs)
    )
    sizes = [str(sum(term.size for term in terms.values())) for terms in (mine, other)]
    found = _values(f"{what} entries", sizes[0], sizes[1], names)
    found += _sets(f"{what} terms", list(mine), list(other), names)
    for name in (name for name in mine if name in other):
        label = f"{what} term {name!r}"
        (kind, of, shape), (their_kind, their_of, their_shape) = (
            _owned(term, layout) for term, layout in ((mine[name], ours), (other[name], theirs))
        )
        found += _values(label, shape, their_shape, names)
        if owners:
            found += _values(f"owners of {label}", kind, their_kind, names)
        if owners and kind == their_kind:
            found += _sets(f"owners of {label}", of, their_of, names)
    return found


def _owned(term: Term, layout: Layout) -> tuple[str, tuple[str, ...], str]:
    """Return the kind of the owners, the owners, and the shape of the entries of each."""
    kind = {"root": "bodies", "node": "bodies"}.get(term.kind, term.kind)
    of = (layout.graph.root,) if term.kind == "root" else term.of
    return kind, of, f"{term.dim} x {term.steps} steps" if term.steps > 1 else str(term.dim)


def _values(what: str, ours: str, theirs: str, names: Names) -> list[str]:
    return [] if ours == theirs else [f"{what}: {ours} for the {names[0]}, {theirs} for the {names[1]}"]
