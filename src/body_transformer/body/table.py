"""A table of a body: the joints, observation entries and actions of each node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..text import printable
from .graph import BodyGraph
from .layout import Layout, Term

if TYPE_CHECKING:
    from rich.table import Table


def allocation_table(graph: BodyGraph, layout: Layout | None) -> Table:
    """Return a table with one row per node: its joints, observation entries and actions."""
    from rich.table import Table

    joints: dict[str, list[str]] = {node: [] for node in graph.nodes}
    for joint, node in graph.joints.items():
        follows = f" (follows {graph.mimics[joint]})" if joint in graph.mimics else ""
        joints[node].append(printable(f"{joint}{follows}"))
    table = Table("node", "parent", "joints", "observation entries", "actions")
    for k, node in enumerate(graph.nodes):
        owned = [_summary(terms, graph, k) for terms in (layout.obs, layout.actions)] if layout else ["", ""]
        table.add_row(printable(node), printable(graph.parents.get(node, "(root)")), ", ".join(joints[node]), *owned)
    return table


def _summary(terms: Sequence[Term], graph: BodyGraph, node_id: int) -> str:
    """Return `7: joint_pos 2, joint_vel 2, contact_force 3`."""
    counts = Counter({term.name: int((term.node_ids(graph) == node_id).sum()) for term in terms})
    total = counts.total()
    listed = ", ".join(f"{printable(name)} {count}" for name, count in counts.items() if count)
    return f"{total}: {listed}" if total else "-"
