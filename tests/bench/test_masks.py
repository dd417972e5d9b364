"""Random trees, random masks and real bodies."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from body_transformer import BodyGraph
from body_transformer.bench.masks import (
    BODIES,
    DOG_PARENTS,
    MAX_CHILDREN,
    count_ones,
    grid_edges,
    mask_of,
    random_mask,
    tree_mask,
    with_skin,
)

SIZES = {"A1": (13, 37), "humanoid": (16, 46), "Adroit hand": (25, 73), "CMU humanoid": (32, 94), "dog": (61, 181)}
SIZES["humanoid, 1000 taxels"] = (1016, 4566)
"""Numbers of nodes and of ones; a tree has 3n - 2 ones."""


@pytest.mark.parametrize("num_nodes", [1, 2, 16, 300])
def test_a_random_body_is_a_tree_with_few_neighbours_per_node(num_nodes: int) -> None:
    mask = tree_mask(num_nodes)
    assert mask.sum() == 3 * num_nodes - 2
    assert mask.diagonal().all()
    assert torch.equal(mask, mask.T)
    assert mask.sum(1).max() <= MAX_CHILDREN + 2
    reach = torch.linalg.matrix_power(mask.double(), num_nodes)
    assert (reach > 0).all()


def test_the_same_seed_gives_the_same_body() -> None:
    assert torch.equal(tree_mask(50, seed=3), tree_mask(50, seed=3))
    assert not torch.equal(tree_mask(50, seed=3), tree_mask(50, seed=4))


@pytest.mark.parametrize("num_nodes", [1, 2, 11, 16, 64, 128])
@pytest.mark.parametrize("sparsity", [0.0, 0.3, 0.5, 0.908, "most"])
def test_a_random_mask_has_the_given_sparsity_and_a_unit_diagonal(num_nodes: int, sparsity: float | str) -> None:
    most = 1 - 1 / num_nodes
    wanted = most if sparsity == "most" else min(float(sparsity), most)
    mask = random_mask(num_nodes, wanted, np.random.default_rng(0))
    assert mask.shape == (num_nodes, num_nodes)
    assert mask.diagonal().all()
    assert mask.sum() == round((1 - wanted) * num_nodes**2)
    assert abs(1 - mask.mean() - wanted) <= 0.5 / num_nodes**2 + 1e-12


def test_entries_off_the_diagonal_are_drawn_uniformly() -> None:
    rng = np.random.default_rng(0)
    drawn = sum(random_mask(6, 0.5, rng).astype(int) for _ in range(4000))
    share = drawn[~np.eye(6, dtype=bool)] / 4000
    np.testing.assert_allclose(share, 12 / 30, atol=0.04)


@pytest.mark.parametrize(
    ("num_nodes", "sparsity", "complaint"),
    [
        *((n, s, f"sparsity {s} with {n} nodes; .* from 0 to") for n, s in ((8, 0.908), (16, -0.1), (1, 0.5))),
        (0, 0.5, "at least one node; got 0"),
    ],
)
def test_a_sparsity_that_leaves_no_room_for_the_diagonal_is_refused(
    num_nodes: int, sparsity: float, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        count_ones(num_nodes, sparsity)


@pytest.mark.parametrize("name", BODIES)
def test_every_body_has_a_symmetric_mask_that_connects_all_nodes(name: str) -> None:
    mask = BODIES[name]()
    assert (mask == mask.T).all()
    reached = np.arange(len(mask)) == 0
    for _ in mask:
        reached = mask[reached].any(axis=0)
    assert reached.all()
    assert (len(mask), mask.sum()) == SIZES[name]


def test_the_dog_has_the_bodies_of_dm_controls_file() -> None:
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


def test_a_grid_joins_adjacent_cells() -> None:
    assert sorted(grid_edges(5)) == [(0, 1), (0, 3), (1, 2), (1, 4), (3, 4)]
