"""Random trees and real bodies."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from body_transformer import BodyGraph
from body_transformer.bench.bodies import (
    BODIES,
    DOG_PARENTS,
    MAX_CHILDREN,
    body_mask,
    grid_edges,
    mask_of,
    tree_mask,
    with_skin,
)

SIZES = {"A1": (13, 37), "humanoid": (16, 46), "Adroit hand": (25, 73), "CMU humanoid": (32, 94), "dog": (61, 181)}


@pytest.mark.parametrize("num_nodes", [1, 2, 16, 300])
def test_a_random_body_is_a_tree_with_short_rows(num_nodes: int) -> None:
    mask = tree_mask(num_nodes)
    assert mask.sum() == 3 * num_nodes - 2
    assert mask.diagonal().all()
    assert torch.equal(mask, mask.T)
    assert mask.sum(1).max() <= MAX_CHILDREN + 2
    reach = torch.linalg.matrix_power(mask.double(), num_nodes)
    assert (reach > 0).all()


def test_the_same_seed_is_the_same_body() -> None:
    assert torch.equal(tree_mask(50, seed=3), tree_mask(50, seed=3))
    assert not torch.equal(tree_mask(50, seed=3), tree_mask(50, seed=4))


@pytest.mark.parametrize("name", SIZES)
def test_bodies_have_these_nodes_and_ones(name: str) -> None:
    mask = body_mask(name)
    assert (len(mask), mask.sum()) == SIZES[name]
    assert mask.sum() == 3 * len(mask) - 2  # a tree


def test_every_body_is_a_symmetric_mask_of_one_piece() -> None:
    for name in BODIES:
        mask = body_mask(name)
        assert (mask == mask.T).all()
        reached = np.zeros(len(mask), dtype=bool)
        reached[0] = True
        for _ in range(len(mask)):
            reached = mask[reached].any(axis=0)
        assert reached.all(), name


def test_the_dog_is_dm_controls() -> None:
    os.environ.setdefault("MUJOCO_GL", "disabled")
    suite = pytest.importorskip("dm_control.suite")
    graph = BodyGraph.from_file(Path(suite.__file__).with_name("dog.xml"), root="torso")
    parents = [graph.index(graph.parents[node]) if node in graph.parents else None for node in graph.nodes]
    assert parents == list(DOG_PARENTS)


def test_a_finer_skin_gives_no_node_more_neighbours() -> None:
    graph = BodyGraph.from_edges(["torso", "arm"], [("torso", "arm")])
    coarse, fine = with_skin(graph, 50), with_skin(graph, 500)
    assert (len(coarse), len(fine)) == (52, 502)
    assert coarse.sum(axis=1).max() == fine.sum(axis=1).max() == 5
    assert fine.sum() / len(fine) == pytest.approx(coarse.sum() / len(coarse), rel=0.15)


def test_a_skin_smaller_than_the_body_leaves_parts_bare() -> None:
    graph = BodyGraph.from_edges(["torso", "arm", "hand"], [("torso", "arm"), ("arm", "hand")])
    assert with_skin(graph, 1).tolist() == mask_of(4, [(0, 1), (1, 2), (0, 3)]).tolist()


def test_a_grid_joins_cells_beside_and_below_each_other() -> None:
    assert sorted(grid_edges(5)) == [(0, 1), (0, 3), (1, 2), (1, 4), (3, 4)]
