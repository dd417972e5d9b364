"""Attention masks over a body: its own, and a random one for comparison."""

import numpy as np
import numpy.typing as npt

from ..body.graph import BodyGraph

Mask = npt.NDArray[np.bool_]


def body_mask(graph: BodyGraph, seed: int) -> Mask:
    """Return the body's mask [N, N]: a node attends to itself and to its neighbours."""
    return graph.mask


def random_mask(graph: BodyGraph, seed: int) -> Mask:
    """Return the mask [N, N] of a random connected body with as many edges, so with as many ones as the real mask."""
    # RandomState, because NumPy promises that its stream never changes: a seed always gives the same mask
    random = np.random.RandomState(seed)
    mask = np.eye(graph.num_nodes, dtype=np.bool_)
    for a, b in _random_tree(graph.num_nodes, random):
        mask[a, b] = mask[b, a] = True
    free = np.argwhere(np.triu(~mask))
    num_missing = (graph.num_ones - int(mask.sum())) // 2  # positive if the body has loops
    for a, b in free[random.permutation(len(free))[:num_missing]]:
        mask[a, b] = mask[b, a] = True
    return mask


MASKS = {"body": body_mask, "random": random_mask}


def _random_tree(num_nodes: int, random: np.random.RandomState) -> list[tuple[int, int]]:
    """Draw a tree uniformly from all labelled trees, by decoding a random Prüfer sequence."""
    if num_nodes < 2:
        return []
    sequence = random.randint(num_nodes, size=num_nodes - 2).tolist()
    degree = np.bincount(sequence, minlength=num_nodes) + 1
    edges = []
    for node in sequence:
        leaf = int(np.argmax(degree == 1))
        edges.append((leaf, node))
        degree[leaf] -= 1
        degree[node] -= 1
    last = np.flatnonzero(degree == 1)
    return [*edges, (int(last[0]), int(last[1]))]
