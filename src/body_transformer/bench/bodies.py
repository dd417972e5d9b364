"""Random bodies of any size, for masks that look like a robot's."""

import numpy as np
import torch
from torch import Tensor

MAX_CHILDREN = 3
"""A row of the mask then has at most five ones: the node, its parent and its children."""


def tree_mask(num_nodes: int, seed: int = 0) -> Tensor:
    """[N, N] bool: a tree in which every node's parent is drawn among the earlier ones that have room; self-loops."""
    mask = torch.eye(num_nodes, dtype=torch.bool)
    parents = torch.tensor(random_parents(num_nodes, seed), dtype=torch.int64)
    children = torch.arange(1, num_nodes)
    mask[children, parents] = True
    mask[parents, children] = True
    return mask


def random_parents(num_nodes: int, seed: int) -> list[int]:
    """The parent of each node but the first."""
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
