"""Random masks and neighbour lists."""

import numpy as np
import pytest

from body_transformer.bench.paper.masks import MaskRows, count_ones, random_mask


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


def test_every_place_off_the_diagonal_is_drawn_as_often_as_any_other() -> None:
    rng = np.random.default_rng(0)
    drawn = sum(random_mask(6, 0.5, rng).astype(int) for _ in range(4000))
    share = drawn[~np.eye(6, dtype=bool)] / 4000
    np.testing.assert_allclose(share, 12 / 30, atol=0.04)


@pytest.mark.parametrize(("num_nodes", "sparsity"), [(8, 0.908), (16, 0.95), (16, -0.1), (1, 0.5)])
def test_a_sparsity_that_leaves_no_room_for_the_diagonal_is_refused(num_nodes: int, sparsity: float) -> None:
    with pytest.raises(ValueError, match=f"sparsity {sparsity} with {num_nodes} nodes; .* from 0 to"):
        count_ones(num_nodes, sparsity)


def test_a_mask_without_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one node; got 0"):
        count_ones(0, 0.5)


def test_neighbour_lists_hold_the_ones_row_by_row() -> None:
    mask = random_mask(20, 0.7, np.random.default_rng(1))
    lists = MaskRows.of(mask)
    for row, start, end in zip(mask, lists.starts, lists.starts[1:], strict=False):
        assert lists.neighbours[start:end].tolist() == np.flatnonzero(row).tolist()
    columns, valid = lists.padded()
    assert [line[used].tolist() for line, used in zip(columns, valid, strict=True)] == [
        np.flatnonzero(row).tolist() for row in mask
    ]


@pytest.mark.parametrize(
    ("mask", "complaint"),
    [
        (np.ones((3, 4), dtype=bool), r"bool array \[N, N\]"),
        (np.ones((3, 3)), "got float64"),
        (np.ones((0, 0), dtype=bool), "N at least 1"),
        (~np.eye(3, dtype=bool), "attend to itself"),
    ],
)
def test_an_array_that_is_not_a_mask_is_refused(mask: np.ndarray, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        MaskRows.of(mask)
