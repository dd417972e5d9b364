"""Layouts that are inferred from names: words in names, the owner of each entry, and the terms that follow."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from ..errors import listing
from .layout import Kind, Layout, Term
from .table import allocation_table

GLOBAL_WORDS = {"base", "root", "gravity", "command", "commands", "clock", "phase", "heading", "goal", "imu", "twist"}
"""Words in the names of terms about the whole robot, which the root owns unless another rule applies."""
JOINT_WORDS = {"joint", "joints", "dof", "dofs", "qpos", "qvel", "q", "dq", "qd"}
ACTUATOR_WORDS = {"actuator", "actuators", "ctrl", "motor", "motors", "torque", "torques", "tau"}
CONTACT_WORDS = {"contact", "contacts"}
BODY_WORDS = {"body", "bodies", "link", "links", *CONTACT_WORDS}
SITE_WORDS = {"site", "sites"}
ACTION_WORDS = {"action", "actions"}
HAND_WORDS = {"finger", "fingers", "gripper", "grippers", "hand", "hands", "thumb"}


def words_of(*names: str) -> set[str]:
    """Return the lower-case words in some names."""
    return set(re.findall("[a-z]+", "_".join(names).lower()))


class Owner(NamedTuple):
    """The owner of an entry, as a `Term` names it."""

    kind: Kind
    name: str = ""
    """Empty for the kinds `root` and `unused`."""


ROOT = Owner("root")


@dataclass(frozen=True)
class InferredLayout:
    """A layout, and the terms that could not be inferred."""

    layout: Layout
    guessed: list[str]
    """Names of unknown terms, which the root owns."""
    remedy: str = "layout overrides can place them"
    """Instruction for giving unknown terms another owner."""
    unclear: Mapping[str, str] = field(default_factory=dict)
    """Ambiguous terms, which the root owns, and why they are ambiguous."""

    def describe(self) -> str:
        """Return the table that `bot inspect` prints, one row per node, and the guessed terms."""
        from ..console import SafeConsole

        layout = self.layout
        out = SafeConsole(markup=False, highlight=False, file=io.StringIO(), width=140)
        out.print(allocation_table(layout.graph, layout))
        out.print(f"{layout.obs_dim} observation entries, {layout.used_obs_dim} used; {layout.action_dim} actions")
        for what, names in (("unknown", self.guessed), ("ambiguous", self.unclear)):
            if names:
                out.print(f"{what} terms {listing(names)} go to the root; {self.remedy}")
        assert isinstance(out.file, io.StringIO)
        return out.file.getvalue()


def spread(owners: Sequence[Owner], size: int) -> list[Owner] | None:
    """Return the owner of each of `size` entries, with equal runs per owner; None if that is impossible."""
    if not owners or size % len(owners):
        return None
    return [owner for owner in owners for _ in range(size // len(owners))]


def as_terms(name: str, owners: Sequence[Owner], steps: int) -> list[Term]:
    """Return one Term if possible, otherwise several: a Term has each owner once, with equally many entries."""
    pieces: list[list[tuple[Owner, int]]] = []
    for owner, count in [(owner, len(list(entries))) for owner, entries in groupby(owners)]:
        if pieces and _can_extend(pieces[-1], owner, count):
            pieces[-1].append((owner, count))
        else:
            pieces.append([(owner, count)])
    if len(pieces) == 1:
        return [_term(name, pieces[0], steps)]
    if pieces.count(pieces[0]) == len(pieces):
        return [_term(name, pieces[0], len(pieces) * steps)]  # positions of all joints, then their velocities
    return [
        _term(f"{name}{f'@{step}' if steps > 1 else ''}.{k}", piece, 1)
        for step in range(steps)
        for k, piece in enumerate(pieces)
    ]


def _can_extend(piece: Sequence[tuple[Owner, int]], owner: Owner, count: int) -> bool:
    """Return whether the Term of a piece can also hold the next `count` entries, which belong to `owner`."""
    (first, size), known = piece[0], [other for other, _ in piece]
    return owner.name != "" and (owner.kind, count) == (first.kind, size) and owner not in known


def _term(name: str, piece: Sequence[tuple[Owner, int]], steps: int) -> Term:
    of = tuple(owner.name for owner, _ in piece if owner.name)
    kind, dim = piece[0][0].kind, piece[0][1]
    if kind == "unused":
        return Term.unused(name, dim * steps)
    return Term(name, kind, of, dim, steps)
