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
    found = _sets("nodes", ours.graph.nodes, theirs.graph.nodes, names)
    if set(ours.graph.nodes) == set(theirs.graph.nodes):  # for another robot, all edges and owners differ
        found += _values("root", listing(ours.graph.roots), listing(theirs.graph.roots), names)
        found += _sets("edges", _edges(ours), _edges(theirs), names)
    root = None if found else ours.graph.root
    found += _terms("observation", ours.obs, theirs.obs, root, names)
    found += _terms("action", ours.actions, theirs.actions, root, names)
    return found


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


def _terms(what: str, ours: Sequence[Term], theirs: Sequence[Term], root: str | None, names: Names) -> list[str]:
    """Compare sizes, names and order of terms and the owners of their entries.

    `root` is the root of both bodies, or None if the bodies differ. Then owners are not compared.
    """
    size, their_size = (str(sum(term.size for term in terms)) for terms in (ours, theirs))
    found = _values(f"{what} entries", size, their_size, names)
    found += _sets(f"{what} terms", [term.name for term in ours], [term.name for term in theirs], names)
    their_term = {term.name: term for term in theirs}
    for mine in (term for term in ours if term.name in their_term):
        label, other = f"{what} term {mine.name!r}", their_term[mine.name]
        found += _values(label, _shape(mine), _shape(other), names)
        if root is not None:
            label = f"owners of {label}"
            (kind, owners), (their_kind, their_owners) = (_kind_and_owners(term, root) for term in (mine, other))
            found += _values(label, kind, their_kind, names) or _sets(label, owners, their_owners, names)
    return found


def _kind_and_owners(term: Term, root: str) -> tuple[str, tuple[str, ...]]:
    """Return the kind and the names of a term's owners; the root and a node are bodies."""
    kind = "bodies" if term.kind in ("root", "node") else term.kind
    return kind, (root,) if term.kind == "root" else term.of


def _shape(term: Term) -> str:
    """Return the number of entries per owner and, if there are several, of steps."""
    return f"{term.dim} x {term.steps} steps" if term.steps > 1 else str(term.dim)


def _values(what: str, ours: str, theirs: str, names: Names) -> list[str]:
    return [] if ours == theirs else [f"{what}: {ours} for the {names[0]}, {theirs} for the {names[1]}"]
