from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from body_transformer import BodyGraph, robots
from body_transformer.model.mask import random_mask

from ..random_graphs import graphs
from .bodies import chain, some

seeds = st.integers(0, 2**32 - 1)


def is_connected(mask: np.ndarray) -> bool:
    return bool((np.linalg.matrix_power(mask.astype(float), len(mask)) > 0).all())


@some
@given(graphs(max_nodes=40, max_roots=3), seeds)
def test_a_random_mask_is_symmetric_connected_with_self_loops_and_as_many_ones_as_the_body(graph, seed):
    mask = random_mask(graph, seed)
    assert mask.dtype == np.bool_
    assert (mask == mask.T).all()
    assert mask.diagonal().all()
    assert mask.sum() == graph.num_ones
    assert is_connected(mask)
    assert graph.num_nodes == 1 or (mask.sum(1) > 1).all()  # every node has a neighbour


@some
@given(graphs(min_nodes=12, max_nodes=40), st.lists(seeds, min_size=2, max_size=2, unique=True))
def test_different_seeds_give_different_masks(graph, pair):
    assert (random_mask(graph, pair[0]) != random_mask(graph, pair[1])).any()


def test_a_seed_gives_the_same_mask_in_every_version():
    mask = random_mask(chain(5).graph, seed=0)  # NumPy draws 4, 0, 3, the Prüfer sequence of this tree
    assert np.argwhere(np.triu(mask, 1)).tolist() == [[0, 2], [0, 3], [1, 4], [3, 4]]


def test_random_trees_are_drawn_uniformly():
    counts: dict[bytes, int] = {}
    for seed in range(3200):
        key = random_mask(chain(4).graph, seed).tobytes()
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 16  # Cayley: 4^2 labelled trees on four nodes
    assert all(140 < count < 260 for count in counts.values())  # 200 expected, four standard deviations are 55


@pytest.mark.parametrize("robot", robots.names())
def test_the_shipped_robots_have_random_masks_that_are_not_their_own(robot):
    graph = BodyGraph.from_file(Path(robots.path(robot)))
    assert (random_mask(graph, 0) != graph.mask).any()
    assert random_mask(graph, 0).sum() == graph.num_ones
