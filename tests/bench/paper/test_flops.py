"""The appendix's formulas against operations counted one by one."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from body_transformer.bench.masks import random_mask
from body_transformer.bench.paper.flops import ALGORITHMS, Algorithm, count, formula, left_out
from body_transformer.ops.body_attention import reference


def random_case(num_nodes: int, head_dim: int, sparsity: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(num_nodes)
    most = 1 - 1 / num_nodes
    return rng.standard_normal((3, num_nodes, head_dim)), random_mask(num_nodes, min(sparsity, most), rng)


@settings(max_examples=40, deadline=None)
@given(
    num_nodes=st.integers(1, 12),
    head_dim=st.integers(1, 9),
    sparsity=st.floats(0, 0.99),
    exp_flops=st.integers(1, 20),
)
def test_formulas_equal_the_counted_operations(num_nodes: int, head_dim: int, sparsity: float, exp_flops: int) -> None:
    (q, k, v), mask = random_case(num_nodes, head_dim, sparsity)
    density = float(mask.mean())
    for name in ALGORITHMS:
        written = formula(name, num_nodes, density, head_dim, exp_flops)
        _, tally = count(name, q.tolist(), k.tolist(), v.tolist(), mask.tolist())
        assert tally.flops(exp_flops) == written
        _, executed = count(name, q.tolist(), k.tolist(), v.tolist(), mask.tolist(), as_executed=True)
        assert executed.flops(exp_flops) == written + sum(left_out(name, num_nodes, density).values())


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("as_executed", [False, True])
def test_the_counted_evaluation_computes_attention(name: Algorithm, as_executed: bool) -> None:
    (q, k, v), mask = random_case(9, 5, 0.6)
    out, _ = count(name, q.tolist(), k.tolist(), v.tolist(), mask.tolist(), as_executed)
    seen = None if name == "vanilla" and not as_executed else torch.tensor(mask)  # the appendix does not mask vanilla
    expected = reference.body_attention(*torch.from_numpy(np.stack([q, k, v]))[:, None, None], seen)[0, 0]
    np.testing.assert_allclose(out, expected.numpy(), rtol=1e-6)


def test_the_formulas_are_the_polynomials_of_the_paper() -> None:
    n, d, density, c1, c2 = 64, 48, 0.25, 1, 11
    vanilla = 4 * n**2 * d + (2 + c2) * n**2 - n * d - n + c1
    paper = (2 * density + 2) * n**2 * d + (2 + c2) * density * n**2 - n * d - n + c1
    assert formula("vanilla", n, density, d, c2) == vanilla
    assert formula("paper", n, density, d, c2) == paper


def test_the_papers_ratio_tends_to_four_over_two_plus_two_densities() -> None:
    density = 0.092
    ratio = formula("vanilla", 4096, density, 4096) / formula("paper", 4096, density, 4096)
    assert ratio == pytest.approx(4 / (2 * density + 2), rel=1e-3)


def test_a_full_mask_costs_all_algorithms_the_same() -> None:
    assert len({formula(name, 20, 1.0, 8) for name in ALGORITHMS}) == 1


def test_on_a_tree_our_cost_grows_linearly() -> None:
    small, large = (formula("ours", n, (3 * n - 2) / n**2, 64) for n in (1000, 2000))
    assert large / small == pytest.approx(2, rel=1e-2)


def test_a_density_below_the_diagonals_is_refused() -> None:
    with pytest.raises(ValueError, match=r"density 0\.05 with 16 nodes; the share of ones is from 0\.0625 to 1"):
        formula("ours", 16, 0.05, 64)
