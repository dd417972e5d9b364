"""Real robot bodies, from a quadruped to a humanoid that feels; their ones grow linearly with their nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import ceil, sqrt

import numpy as np

from .. import robots
from ..body.graph import BodyGraph
from .masks import Mask

NUM_TAXELS = 1000

# fmt: off
DOG_PARENTS = (
    None, *range(13), 8, *range(14, 18),  # torso, lumbar spine, pelvis, the legs' bones
    8, *range(19, 39),  # the tail
    0, *range(40, 48),  # neck, skull, jaw
    0, *range(49, 54), 0, *range(55, 60),  # the arms' bones
)
"""The parent of each body of dm_control's dog (dm_control 1.0.44, suite/dog.xml, Apache-2.0), in the file's order."""
# fmt: on


def mask_of(num_nodes: int, edges: Iterable[tuple[int, int]]) -> Mask:
    """M = I + A."""
    mask = np.eye(num_nodes, dtype=bool)
    for a, b in edges:
        mask[a, b] = mask[b, a] = True
    return mask


def tree_edges(parents: Sequence[int | None]) -> list[tuple[int, int]]:
    return [(parent, child) for child, parent in enumerate(parents) if parent is not None]


def with_skin(graph: BodyGraph, num_taxels: int) -> Mask:
    """Each body part carries a square patch of taxels, each a neighbour of those beside it.

    A patch hangs on its part by its first taxel alone, so that no part has more neighbours the finer its skin is.
    """
    parts = graph.num_nodes
    edges = [(graph.index(parent), graph.index(child)) for parent, child in graph.edges]
    first = parts
    for part in range(parts):
        size = num_taxels // parts + (part < num_taxels % parts)
        if size:
            edges += [(part, first), *((first + a, first + b) for a, b in grid_edges(size))]
        first += size
    return mask_of(parts + num_taxels, edges)


def grid_edges(size: int) -> list[tuple[int, int]]:
    """Neighbours among `size` cells that fill a square row by row."""
    side = ceil(sqrt(size))
    beside = [(cell, cell + 1) for cell in range(size - 1) if (cell + 1) % side]
    return beside + [(cell, cell + side) for cell in range(size - side)]


def body_mask(name: str) -> Mask:
    """The mask of one of `BODIES`."""
    return BODIES[name]()


def _shipped(name: str) -> Mask:
    return BodyGraph.from_file(robots.path(name)).mask


def _dog() -> Mask:
    return mask_of(len(DOG_PARENTS), tree_edges(DOG_PARENTS))


def _skin() -> Mask:
    return with_skin(BodyGraph.from_file(robots.path("humanoid")), NUM_TAXELS)


BODIES: Mapping[str, Callable[[], Mask]] = {
    "A1": partial(_shipped, "a1"),
    "humanoid": partial(_shipped, "humanoid"),
    "Adroit hand": partial(_shipped, "adroit_door"),
    "CMU humanoid": partial(_shipped, "cmu_humanoid"),
    "dog": _dog,
    f"humanoid, {NUM_TAXELS} taxels": _skin,
}
"""Name -> how its mask is made; from the smallest to the largest."""
