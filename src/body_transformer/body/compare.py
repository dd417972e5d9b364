"""What differs between two layouts: a policy of the one is no policy for the other."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import listing
from .layout import Layout, Term

Names = tuple[str, str]
"""What the two layouts are called in what is said."""


def differences(ours: Layout, theirs: Layout, names: Names = ("policy", "task")) -> list[str]:
    """A sentence for each difference in nodes, edges, observations and actions; none if they are the same.

    Who owns an entry counts, not how that was said: the root, a body and a node of the same name are one owner.
    """
    bodies = _sets("nodes", ours.graph.nodes, theirs.graph.nodes, names)
    if set(ours.graph.nodes) == set(theirs.graph.nodes):  # of another robot all edges and owners are others
        bodies += _values("root", repr(ours.graph.root), repr(theirs.graph.root), names)
        bodies += _sets("edges", _edges(ours), _edges(theirs), names)
    return [
        *bodies,
        *_terms("observation", ours, theirs, names, owners=not bodies),
        *_terms("action", ours, theirs, names, owners=not bodies),
    ]


def check_same(ours: Layout, theirs: Layout, names: Names = ("policy", "task")) -> None:
    """An error that lists the differences, if there are any."""
    found = differences(ours, theirs, names)
    if found:
        raise ValueError(f"the {names[0]} does not fit the {names[1]}: {'; '.join(found)}")


def _sets(what: str, ours: Sequence[str], theirs: Sequence[str], names: Names) -> list[str]:
    """Names that only one has; else, whether they come in another order."""
    found = [
        f"{what} that only the {name} has: {listing(only)}"
        for name, mine, other in ((names[0], ours, theirs), (names[1], theirs, ours))
        if (only := [one for one in mine if one not in other])
    ]
    if found or list(ours) == list(theirs):
        return found
    first = next(k for k, (mine, other) in enumerate(zip(ours, theirs, strict=True)) if mine != other)
    place = f"number {first + 1} is {ours[first]!r} for the {names[0]} and {theirs[first]!r} for the {names[1]}"
    return [f"{what} come in another order: {place}"]


def _edges(layout: Layout) -> list[str]:
    return sorted("-".join(sorted(pair)) for pair in (*layout.graph.edges, *layout.graph.extra_edges))


def _terms(what: str, ours: Layout, theirs: Layout, names: Names, owners: bool) -> list[str]:
    """Of observation or action terms: sizes, names, order and, where asked for, owners."""
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
    """Kind of the owners, the owners, and the entries of each, however that was said."""
    kind = {"root": "bodies", "node": "bodies"}.get(term.kind, term.kind)
    of = (layout.graph.root,) if term.kind == "root" else term.of
    return kind, of, f"{term.dim} x {term.steps} steps" if term.steps > 1 else str(term.dim)


def _values(what: str, ours: str, theirs: str, names: Names) -> list[str]:
    return [] if ours == theirs else [f"{what}: {ours} for the {names[0]}, {theirs} for the {names[1]}"]
