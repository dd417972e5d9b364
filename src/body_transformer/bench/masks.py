"""Masks to time attention on: random trees, random masks of any sparsity, and robots up to a humanoid with skin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import ceil, sqrt

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .. import robots
from ..body.graph import BodyGraph

Mask = npt.NDArray[np.bool_]
"""[N, N], True = may attend."""

MAX_CHILDREN = 3
"""Limit in random trees. A row of the mask then has at most five ones: the node, its parent and its children."""
NUM_TAXELS = 1000

# fmt: off
DOG_PARENTS = (
    None, *range(13), 8, *range(14, 18),  # torso, lumbar spine, pelvis, the legs' bones
    8, *range(19, 39),  # the tail
    0, *range(40, 48),  # neck, skull, jaw
    0, *range(49, 54), 0, *range(55, 60),  # the arms' bones
)
"""Parent of each body of dm_control's dog (dm_control 1.0.44, suite/dog.xml, Apache-2.0), in the file's order."""
# fmt: on


def mask_of(num_nodes: int, edges: Iterable[tuple[int, int]]) -> Mask:
    """Return M = I + A."""
    mask = np.eye(num_nodes, dtype=bool)
    for a, b in edges:
        mask[a, b] = mask[b, a] = True
    return mask


def tree_edges(parents: Sequence[int | None]) -> list[tuple[int, int]]:
    return [(parent, child) for child, parent in enumerate(parents) if parent is not None]


# -- random trees ------------------------------------------------------------------------------------------------------


def tree_mask(num_nodes: int, seed: int = 0) -> Tensor:
    """Return the mask [N, N] of a random tree, with self-loops."""
    return torch.from_numpy(mask_of(num_nodes, tree_edges([None, *random_parents(num_nodes, seed)])))


def random_parents(num_nodes: int, seed: int) -> list[int]:
    """Draw the parent of each node but the first among the earlier nodes that have room for a child."""
    random = np.random.RandomState(seed)  # NumPy promises that its stream never changes
    free, room, parents = [0], [MAX_CHILDREN], []
    for node in range(1, num_nodes):
        place = int(random.randint(len(free)))
        parents.append(free[place])
        room[place] -= 1
        if room[place] == 0:
            free[place], room[place] = free[-1], room[-1]
            free.pop(), room.pop()
        free.append(node)
        room.append(MAX_CHILDREN)
    return parents


# -- random masks of a given sparsity ----------------------------------------------------------------------------------


def count_ones(num_nodes: int, sparsity: float) -> int:
    """Return the number of ones of a mask of this sparsity (share of zeros); the diagonal is the minimum."""
    if num_nodes < 1:
        raise ValueError(f"a mask needs at least one node; got {num_nodes}")
    ones = round((1 - sparsity) * num_nodes**2)
    if not num_nodes <= ones <= num_nodes**2:
        most = 1 - 1 / num_nodes
        raise ValueError(f"sparsity {sparsity} with {num_nodes} nodes; the unit diagonal allows from 0 to {most:.4g}")
    return ones


def random_mask(num_nodes: int, sparsity: float, rng: np.random.Generator) -> Mask:
    """Draw a mask [N, N] with a unit diagonal; like the paper's, it need not be symmetric."""
    others = count_ones(num_nodes, sparsity) - num_nodes
    places = rng.choice(num_nodes**2 - num_nodes, others, replace=False, shuffle=False)
    mask = np.eye(num_nodes, dtype=bool)
    mask.ravel()[places + places // num_nodes + 1] = True  # N other entries follow each diagonal entry
    return mask


# -- real robots -------------------------------------------------------------------------------------------------------


def with_skin(graph: BodyGraph, num_taxels: int) -> Mask:
    """Return the mask of a body that carries a square patch of taxels on each part.

    A taxel is a neighbour of the taxels next to it. Only a patch's first taxel is joined to the part, so that a finer
    skin does not give the part more neighbours.
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
    """Return the pairs of adjacent cells when `size` cells fill a square row by row."""
    side = ceil(sqrt(size))
    beside = [(cell, cell + 1) for cell in range(size - 1) if (cell + 1) % side]
    return beside + [(cell, cell + side) for cell in range(size - side)]


def _shipped(name: str) -> Mask:
    return BodyGraph.from_file(robots.path(name)).mask


BODIES: Mapping[str, Callable[[], Mask]] = {
    "A1": partial(_shipped, "a1"),
    "humanoid": partial(_shipped, "humanoid"),
    "Adroit hand": partial(_shipped, "adroit_door"),
    "CMU humanoid": partial(_shipped, "cmu_humanoid"),
    "dog": lambda: mask_of(len(DOG_PARENTS), tree_edges(DOG_PARENTS)),
    f"humanoid, {NUM_TAXELS} taxels": lambda: with_skin(BodyGraph.from_file(robots.path("humanoid")), NUM_TAXELS),
}
"""Name -> function that returns its mask; from the smallest to the largest."""
