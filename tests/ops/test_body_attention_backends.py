"""Outputs and gradients of every backend compared with float64; without a GPU, kernels run in Triton's interpreter."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from body_transformer.ops.body_attention import body_attention, tile

from .attention_cases import (
    BACKENDS,
    LIMITS,
    MASKS,
    asymmetric,
    errors,
    exact,
    make_problem,
    outcome,
    star,
    tree,
)

BACKEND = pytest.mark.parametrize("backend", BACKENDS)
DTYPE = pytest.mark.parametrize("dtype", LIMITS, ids=lambda dtype: str(dtype).removeprefix("torch."))
SHAPES = [(1, 1, 1, 1), (3, 1, 33, 7), (2, 2, 16, 32), (1, 2, 5, 128), (5, 1, 3, 8), (1, 1, 70, 24)]


@pytest.fixture
def poisoned(monkeypatch):
    """Fill new tensors with NaN, so that an output entry that is never written is noticed."""
    for owner, name in ((torch, "empty_like"), (torch.Tensor, "new_empty")):
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, make=original, **options: _poison(make(*args, **options)))


def _poison(x: torch.Tensor) -> torch.Tensor:
    return x.fill_(float("nan") if x.is_floating_point() else -1)  # -1 is two NaNs, read as float32


@pytest.mark.usefixtures("poisoned")
@BACKEND
@DTYPE
@pytest.mark.parametrize("mask", MASKS)
def test_every_kind_of_mask_is_computed_correctly(device, backend, dtype, mask):
    problem = make_problem((1, 3, 18, 20), MASKS[mask](18), dtype, device=device)
    assert max(errors(outcome(body_attention, problem, backend=backend), exact(problem))) < LIMITS[dtype]


@pytest.mark.usefixtures("poisoned")
@DTYPE
@pytest.mark.parametrize(("shape", "make_mask"), [((5, 2, 17, 33), tree), ((5, 1, 18, 65), star), ((3, 2, 3, 8), tree)])
def test_several_samples_per_program_are_computed_correctly(device, monkeypatch, dtype, shape, make_mask):
    monkeypatch.setattr("body_transformer.ops.body_attention.sparse.MIN_PROGRAMS", 1)
    problem = make_problem(shape, make_mask(shape[2]), dtype, bias=make_mask is star, device=device)
    assert max(errors(outcome(body_attention, problem, backend="triton"), exact(problem))) < LIMITS[dtype]


@pytest.mark.usefixtures("poisoned")
@BACKEND
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "B{}H{}N{}D{}".format(*s))
def test_every_shape_is_computed_correctly(device, backend, shape):
    problem = make_problem(shape, tree(shape[2]), device=device)
    assert max(errors(outcome(body_attention, problem, backend=backend), exact(problem))) < 1e-5


@pytest.mark.usefixtures("poisoned")
@BACKEND
@DTYPE
@pytest.mark.parametrize("mask", [asymmetric, star])
def test_a_bias_and_its_gradient_are_correct(device, backend, dtype, mask):
    problem = make_problem((4, 2, 20, 8), mask(20), dtype, bias=True, device=device)
    assert max(errors(outcome(body_attention, problem, backend=backend), exact(problem))) < LIMITS[dtype]


@pytest.mark.parametrize("backend", ["reference", "tile"])
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
def test_without_a_mask_all_pairs_attend(device, backend, bias):
    problem = make_problem((2, 2, 11, 9), None, bias=bias, device=device)
    assert max(errors(outcome(body_attention, problem, backend=backend), exact(problem))) < 1e-5


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("size", [13, 40])
def test_a_tile_in_tf32_is_correct_to_three_digits(device, size, bias):
    problem = make_problem((3, 2, size, 24), asymmetric(size), bias=bias, device=device)
    given = (problem.q, problem.k, problem.v, problem.mask, problem.bias)
    found = [torch.full_like(problem.q, float("nan")) for _ in range(4)]
    tile.forward(*given, found[0], precision="tf32")
    grad_bias = tile.backward(*given, problem.grad_out, *found[1:], precision="tf32")
    found += [] if grad_bias is None else [grad_bias]
    assert 1e-6 < max(errors(found, exact(problem))) < 1e-3


@pytest.mark.parametrize("backend", ["reference", "neighbours"])
def test_float64_stays_float64(backend):
    problem = make_problem((2, 1, 6, 3), asymmetric(6), torch.float64, bias=True)
    problem.bias = problem.bias.double()
    inputs = problem.inputs()
    assert torch.autograd.gradcheck(
        lambda q, k, v, b: body_attention(q, k, v, problem.mask, b, backend=backend), inputs
    )


# -- layouts -----------------------------------------------------------------------------------------------------------


@BACKEND
def test_strides_do_not_matter_and_the_output_has_the_layout_of_q(device, backend):
    problem = make_problem((2, 3, 9, 8), tree(9), device=device, seed=1)
    plain = make_problem((2, 3, 9, 8), tree(9), device=device, packed=False, seed=1)
    assert problem.q.stride() != plain.q.stride()
    for found, expected in zip(
        outcome(body_attention, problem, backend=backend), outcome(body_attention, plain, backend=backend), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    out = body_attention(problem.q, problem.k, problem.v, problem.mask, backend=backend)
    assert out.stride() == torch.empty_like(problem.q).stride()
    assert out.transpose(1, 2).is_contiguous()  # the caller's reshape to [B, N, H·D] copies nothing


@BACKEND
def test_any_strides_are_accepted(device, backend):
    problem = make_problem((2, 3, 9, 8), asymmetric(9), bias=True, device=device)
    wide = torch.randn(2, 3, 9, 16, device=device)
    problem.q = wide[..., ::2]
    problem.k = problem.k.transpose(2, 3).contiguous().transpose(2, 3)
    problem.v = wide[:1, :1, :, 3:11].expand(2, 3, 9, 8)
    problem.mask, problem.bias = problem.mask.T, problem.bias.T
    problem.grad_out = torch.ones(1, device=device).expand(2, 3, 9, 8)
    assert max(errors(outcome(body_attention, problem, backend=backend), exact(problem))) < 1e-5


@BACKEND
@pytest.mark.parametrize("shape", [(0, 2, 5, 4), (2, 0, 5, 4)], ids=["no samples", "no heads"])
def test_an_empty_batch_has_an_empty_output_and_no_gradient(device, backend, shape):
    problem = make_problem(shape, tree(5), bias=True, device=device)
    out, *grads, grad_bias = outcome(body_attention, problem, backend=backend)
    assert [x.shape for x in (out, *grads)] == [shape] * 4
    assert grad_bias.shape == (5, 5)
    assert not grad_bias.any()


@settings(max_examples=12, deadline=None)
@given(st.data())
@BACKEND
def test_any_small_problem_is_computed_correctly(device, backend, data):
    sizes = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 12), st.integers(1, 17))
    shape, seed = data.draw(sizes), data.draw(st.integers(0, 1000))
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=shape[2] ** 2, max_size=shape[2] ** 2)))
    mask = mask.view(shape[2], shape[2]) | torch.eye(shape[2], dtype=torch.bool)
    problem = make_problem(shape, mask, bias=data.draw(st.booleans()), device=device, seed=seed)
    found = outcome(body_attention, problem, backend=backend)
    assert max(errors(found, exact(problem))) < 1e-4  # terms may cancel almost completely


# -- repeatability and influence ---------------------------------------------------------------------------------------


@BACKEND
@pytest.mark.parametrize("mask", [asymmetric, star])
def test_the_same_inputs_give_the_same_bits(device, backend, mask):
    problem = make_problem((3, 2, 18, 8), mask(18), bias=True, device=device)
    first, second = (outcome(body_attention, problem, backend=backend) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("backend", ["neighbours", "triton"])
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("mask", [tree, star], ids=["light", "heavy"])
def test_masked_nodes_have_no_influence_even_if_they_are_nan(device, backend, poison, mask):
    half = 18
    both = torch.block_diag(mask(half), mask(half)).bool()
    problem = make_problem((1, 2, 2 * half, 8), both, device=device)
    clean = outcome(body_attention, problem, backend=backend)
    for x in (problem.q, problem.k, problem.v, problem.grad_out):
        x[:, :, :half] = poison
    dirty = outcome(body_attention, problem, backend=backend)
    for before, after in zip(clean, dirty, strict=True):
        assert not after[:, :, :half].isfinite().all()
        assert torch.equal(before[:, :, half:], after[:, :, half:])


@BACKEND
def test_a_sample_has_no_influence_on_another_even_if_it_is_nan(device, backend):
    problem = make_problem((3, 2, 7, 8), tree(7), device=device)
    clean = outcome(body_attention, problem, backend=backend)
    for x in (problem.q, problem.k, problem.v, problem.grad_out):
        x[1, 1] = float("nan")
    dirty = outcome(body_attention, problem, backend=backend)
    for before, after in zip(clean, dirty, strict=True):
        assert after[1, 1].isnan().all()
        after[1, 1] = before[1, 1]
        assert torch.equal(before, after)


@BACKEND
def test_a_node_that_attends_to_itself_alone_has_no_gradient_in_its_query(device, backend):
    mask = tree(9)
    mask[4] = torch.eye(9, dtype=torch.bool)[4]
    _, dq, *_ = outcome(body_attention, make_problem((2, 2, 9, 8), mask, device=device), backend=backend)
    assert not dq[:, :, 4].any()
    assert dq[:, :, 5].all()


@BACKEND
def test_huge_scores_do_not_overflow(device, backend):
    problem = make_problem((1, 2, 6, 8), asymmetric(6), device=device)
    problem.q, problem.k = problem.q * 1e15, problem.k * 1e15
    assert outcome(body_attention, problem, backend=backend)[0].isfinite().all()


@BACKEND
def test_inputs_are_not_modified(device, backend):
    problem = make_problem((1, 2, 6, 4), asymmetric(6), bias=True, device=device)
    given = [problem.q, problem.k, problem.v, problem.mask, problem.bias, problem.grad_out]
    copies = [x.clone() for x in given]
    outcome(body_attention, problem, backend=backend)
    assert all(torch.equal(x, copy) for x, copy in zip(given, copies, strict=True))


# -- a bias that forbids -----------------------------------------------------------------------------------------------


def forbidding(mask: torch.Tensor, device: str) -> torch.Tensor:
    """Return -inf for every second neighbour of each node, starting with its first, but never for all of them."""
    nth = mask.cumsum(1)
    forbidden = mask & (nth % 2 == 1) & (mask.sum(1, keepdim=True) > 1)
    return torch.randn(mask.shape).masked_fill(forbidden, float("-inf")).to(device)


@BACKEND
@pytest.mark.parametrize("mask", [tree, star, asymmetric])
def test_a_bias_of_minus_infinity_forbids_a_pair(device, backend, mask):
    problem = make_problem((2, 1, 20, 8), mask(20), bias=True, device=device)
    problem.bias = forbidding(mask(20), device)
    assert max(errors(outcome(body_attention, problem, backend=backend), exact(problem))) < 1e-5


@pytest.mark.parametrize("backend", ["neighbours", "triton", "tile"])
def test_a_bias_may_forbid_the_first_hundred_neighbours(device, backend):
    problem = make_problem((1, 1, 128, 4), star(128), bias=True, device=device)
    problem.bias[64, :100] = float("-inf")
    assert max(errors(outcome(body_attention, problem, backend=backend), exact(problem))) < 1e-5


@BACKEND
@pytest.mark.parametrize("node", [3, 10], ids=["light", "heavy"])
def test_only_a_node_without_any_allowed_pair_is_nan(device, backend, node):
    problem = make_problem((1, 2, 20, 8), star(20), bias=True, device=device)
    clean = outcome(body_attention, problem, backend=backend)
    problem.bias[node] = float("-inf")
    for before, after in zip(clean[:2], outcome(body_attention, problem, backend=backend)[:2], strict=True):
        assert after[:, :, node].isnan().all()
        others = torch.arange(20, device=device) != node
        assert torch.equal(before[:, :, others], after[:, :, others])


@pytest.mark.parametrize("backend", ["triton", "tile"])
@pytest.mark.parametrize("mask", [tree, star], ids=["light", "heavy"])
def test_offsets_inside_a_row_may_exceed_two_to_the_31(device, backend, mask):
    problem = make_problem((1, 1, 20, 3), mask(20), torch.float16, device=device, packed=False)
    # on a CPU only written pages use memory
    memory = torch.empty(2**31 + 20, dtype=torch.float16, device=device)
    far = memory.as_strided((1, 1, 20, 3), (1, 1, 1, 2**30)).copy_(problem.q)
    problem.q = problem.k = problem.v = problem.grad_out = far
    assert max(errors(outcome(body_attention, problem, backend=backend), exact(problem))) < LIMITS[torch.float16]
