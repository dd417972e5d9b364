"""The kernels of the encoder against the reference in float64."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from body_transformer.ops.encoder_stack import PARAMETERS, PRECISIONS, encoder_stack

from .attention_cases import MASKS
from .encoder_cases import (
    PATTERNS,
    Case,
    differentiated,
    draw_problem,
    draw_smooth,
    errors,
    exact,
    exact_output,
    in_tf32,
    outcome,
    poisoned_memory,
    same_bits,
)

pytest.importorskip("triton")

SMALL = Case(3, 5, 16, 20, 2)
OPERATOR = torch.ops.body_transformer.encoder_stack.default

BACKEND = pytest.mark.parametrize("backend", ["fused", "wide"])
FUSED = [
    Case(5, 1, 16, 20, 1, 2, "hard", "identity"),
    Case(1, 1, 128, 128, 2, 1, "unmasked", "all ones"),
    Case(9, 5, 40, 100, 2, 3, "mix", "tree"),
    Case(3, 13, 48, 128, 3, 2, "mix", "asymmetric"),
    Case(5, 16, 64, 128, 2, 3, "mix", "tree"),
    Case(9, 16, 64, 200, 4, 1, "unmasked", "identity"),
    Case(3, 17, 96, 200, 4, 1, "hard", "asymmetric"),
    Case(1, 33, 128, 100, 4, 1, "mix", "tree"),
    Case(3, 50, 32, 20, 1, 2, "mix", "all ones"),
    Case(1, 64, 128, 128, 2, 1, "hard", "tree"),
    Case(2, 64, 20, 200, 4, 1, "hard", "identity"),
    Case(3, 5, 57, 100, 1, 1, "hard", "star"),
    Case(65, 16, 16, 20, 1, 1, "hard"),  # more rows than one share of the weight gradients
]

WIDE = [
    Case(4, 8, 32, 64, 2),
    Case(2, 16, 64, 32, 4, 2, "hard"),
    Case(2, 4, 16, 16, 1, 1, "unmasked"),
    Case(3, 5, 48, 100, 3, 3),  # no block size divides these sizes
    Case(3, 5, 40, 100, 5, 2, "mix", "asymmetric"),
    Case(5, 1, 24, 20, 1, 1, "hard", "identity"),
    Case(1, 33, 32, 24, 2),
]
CASES = [*(("fused", case) for case in FUSED), *(("wide", case) for case in WIDE)]

COARSE = {"tf32": 5e-3, "bf16": 4e-2}
"""Precision -> largest allowed error; also the distance from zero that keeps the sign of a ReLU's input."""


@pytest.fixture(autouse=True)
def _poisoned() -> Iterator[None]:
    with poisoned_memory():
        yield


# -- accuracy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backend", "case"), CASES, ids=str)
def test_float32_gives_the_references_output_and_every_gradient(device, backend, case):
    problem = draw_smooth(case, device)
    wrong = errors(outcome(problem, backend=backend), exact(problem))
    assert max(wrong.values()) < 1e-5, wrong


@st.composite
def cases(draw: st.DrawFn) -> Case:
    heads = draw(st.integers(1, 4))
    width = heads * draw(st.integers(-(-16 // heads), 64 // heads))
    nodes, hidden = draw(st.integers(1, 20)), draw(st.integers(8, 70))  # gradients of fewer units may cancel out
    pattern, mask = draw(st.sampled_from(sorted(PATTERNS))), draw(st.sampled_from(sorted(MASKS)))
    return Case(draw(st.integers(1, 6)), nodes, width, hidden, heads, draw(st.integers(1, 2)), pattern, mask)


@settings(max_examples=6, deadline=None)
@given(case=cases())
def test_any_size_is_computed_correctly(device, case):
    problem = draw_smooth(case, device)
    wrong = errors(outcome(problem), exact(problem))
    assert max(wrong.values()) < 1e-5, wrong


@pytest.mark.parametrize("hidden", [1, 2, 5])
def test_few_hidden_units_are_supported(device, hidden):
    problem = draw_problem(replace(SMALL, ff_dim=hidden), device, seed=1)
    wrong = errors(outcome(problem), exact(problem))
    assert max(wrong.values()) < 1e-5, wrong


@pytest.mark.parametrize("precision", COARSE)
@pytest.mark.parametrize(
    "case", [Case(1, 5, 32, 20, 2, 1), Case(1, 7, 16, 16, 1, 1, "hard"), Case(1, 3, 16, 16, 2, 2)], ids=str
)
def test_low_precision_products_are_as_accurate_as_their_rounding(device, precision, case):
    problem = draw_smooth(case, device, margin=COARSE[precision])
    wrong = errors(outcome(problem, precision=precision), exact(problem))
    assert max(wrong.values()) < COARSE[precision], wrong


@pytest.mark.parametrize("case", [Case(1, 5, 32, 20, 2, 1), Case(1, 3, 16, 16, 2, 2)], ids=str)
def test_tf32_is_as_accurate_as_products_of_rounded_factors(device, case):
    ours, theirs = dict.fromkeys(("out", "x", *PARAMETERS), 0.0), dict.fromkeys(("out", "x", *PARAMETERS), 0.0)
    for _ in range(8):  # errors of small gradients are random
        problem = draw_smooth(case, device, margin=COARSE["tf32"])
        expected = exact(problem)
        for sums, found in ((ours, outcome(problem, precision="tf32")), (theirs, in_tf32(problem))):
            for name, error in errors(found, expected).items():
                sums[name] += error
    ratios = {name: ours[name] / theirs[name] for name in theirs}
    assert max(ratios.values()) <= 1.5, ratios
    assert min(ratios.values()) > 0.3, ratios  # much higher accuracy would show that it is not TF32


USUAL = [
    *(("fused", name, Case(5, 16, 64, 128, 2, 2), limit) for name, limit in COARSE.items()),
    *(("fused", name, Case(3, 17, 96, 200, 3, 1, "hard"), limit) for name, limit in COARSE.items()),
    *(("wide", "bf16", case, 1e-2) for case in WIDE),
]


@pytest.mark.parametrize(("backend", "precision", "case", "limit"), USUAL, ids=str)
def test_low_precision_products_of_the_usual_sizes_are_close(device, backend, precision, case, limit):
    """Rounding changes the sign of some ReLU inputs here, so only large errors of gradients count."""
    problem = draw_problem(case, device)
    wrong = errors(outcome(problem, backend=backend, precision=precision), exact(problem))
    assert wrong["out"] < limit
    assert max(wrong.values()) < 0.2, wrong


def test_the_keys_bias_has_no_gradient(device):
    problem = draw_problem(SMALL, device)
    queries, keys, _ = outcome(problem)["attention.in_proj.bias"].chunk(3, dim=1)
    assert keys.norm() < 1e-5 * queries.norm()  # the softmax cancels it


@pytest.mark.parametrize(("masked", "mistaken"), [({0, 35}, {0, 32}), ({1}, {1, 33})], ids=["64 bits", "32 bits"])
def test_the_mask_flag_of_a_layer_beyond_the_32nd_is_correct(device, masked, mistaken):
    problem = draw_problem(Case(1, 4, 16, 16, 1, 36), device)
    for k, name in enumerate(PARAMETERS):
        # with usual weights, such a deep encoder makes all nodes alike
        for parameter in problem.parameters[k :: len(PARAMETERS)]:
            parameter *= 0.1 if name in ("attention.out_proj.weight", "linear2.weight") else name.endswith("weight")
    problem.masked = [layer in mistaken for layer in range(36)]
    wrong = exact_output(problem)
    problem.masked = [layer in masked for layer in range(36)]
    found, expected = problem.call(), exact_output(problem)
    assert (wrong - expected).norm() > 1e-3 * expected.norm()
    assert (found - expected).norm() < 1e-5 * expected.norm()


def test_epsilon_can_be_set(device):
    problem = draw_problem(SMALL, device)
    x, *parameters = (t.double() for t in (problem.x, *problem.parameters))
    expected = encoder_stack(x, parameters, problem.mask, problem.masked, 2, eps=0.5, backend="reference")
    torch.testing.assert_close(problem.call(eps=0.5).double(), expected, rtol=1e-5, atol=1e-5)


def test_weight_gradients_do_not_depend_on_the_number_of_layers_at_a_time(device, monkeypatch):
    from body_transformer.ops.encoder_stack import packing

    problem = draw_problem(replace(SMALL, num_layers=3), device)
    at_once = outcome(problem)
    monkeypatch.setattr(packing, "FACTOR_BYTES", 1)
    assert same_bits(outcome(problem), at_once)


@BACKEND
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_same_inputs_give_the_same_bits(device, backend, precision):
    problem = draw_problem(Case(5, 5, 16, 20, 2), device)
    first, second = (outcome(problem, backend=backend, precision=precision) for _ in range(2))
    assert same_bits(first, second)


# -- influence ---------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::RuntimeWarning:")  # NumPy's, in the interpreter
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30], ids=str)
def test_a_sample_that_is_not_finite_does_not_change_others(device, precision, value):
    problem = draw_problem(Case(6, 5, 16, 20, 2), device)
    others = [0, 1, 3, 4, 5]
    clean = outcome(problem, precision=precision)
    problem.x[2, 1] = value
    found = outcome(problem, precision=precision)
    assert torch.equal(found["out"][others], clean["out"][others])
    assert torch.equal(found["x"][others], clean["x"][others])
    if not abs(value) < float("inf"):
        assert found["out"][2].isnan().all()
        assert all(found[name].isnan().any() for name in PARAMETERS)  # and the sample's own output is NaN


@pytest.mark.filterwarnings("ignore::RuntimeWarning:")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", range(len(PARAMETERS)), ids=PARAMETERS)
def test_a_parameter_that_is_nan_makes_the_output_nan(device, precision, kind):
    problem = draw_problem(replace(SMALL, batch=1, num_layers=1), device)
    problem.parameters[kind].view(-1)[1] = float("nan")
    expected = exact_output(problem).isnan()
    assert expected.any()
    assert torch.equal(problem.call(precision=precision).isnan(), expected)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_receptive_field_grows_by_one_hop_per_layer(device, precision):
    problem = draw_problem(Case(1, 7, 16, 20, 2, 3, "hard"), device)
    nodes = torch.arange(7)
    problem.mask = ((nodes[:, None] - nodes).abs() <= 1).to(device)
    moved = problem.x.clone()
    moved[:, 0] += 1
    changed = (problem.call(precision=precision) != problem.call(moved, precision=precision)).any(2)[0]
    assert changed.tolist() == [True] * 4 + [False] * 3
    problem.grad_out[:, :6] = 0
    assert (outcome(problem, precision=precision)["x"] != 0).any(2)[0].tolist() == [False] * 3 + [True] * 4


def test_a_node_depends_only_on_the_nodes_in_its_row_of_the_mask(device):
    problem = draw_problem(Case(1, 3, 16, 20, 2, 1, "hard"), device)
    problem.mask = torch.tensor([[1, 1, 0], [0, 1, 0], [0, 0, 1]], device=device).bool()
    moved = problem.x.clone()
    moved[:, 1] += 1
    changed = (problem.call() != problem.call(moved)).any(2)[0]
    assert changed.tolist() == [True, True, False]


@BACKEND
def test_a_full_mask_changes_nothing(device, backend):
    problem = draw_problem(Case(4, 8, 32, 64, 2, 2, "hard", "all ones"), device)
    seen = outcome(problem, backend=backend)
    problem.masked = [False, False]
    assert max(errors(seen, outcome(problem, backend=backend)).values()) < 1e-6


# -- inputs ------------------------------------------------------------------------------------------------------------


def transposed(x: Tensor) -> Tensor:
    return x.transpose(0, -1).contiguous().transpose(0, -1)


def with_gaps(x: Tensor) -> Tensor:
    return torch.cat([x, torch.full_like(x, torch.nan)], -1)[..., : x.shape[-1]]


@BACKEND
@pytest.mark.parametrize("laid_out", [transposed, with_gaps])
def test_strides_do_not_matter_and_inputs_are_not_modified(device, backend, laid_out):
    problem = draw_problem(SMALL, device)
    expected = outcome(problem, backend=backend)
    problem.grad_out, problem.mask = laid_out(problem.grad_out), problem.mask.t().contiguous().t()
    leaves = problem.leaves()
    copies = [leaf.detach().clone() for leaf in leaves]
    x, *parameters = (laid_out(leaf) for leaf in leaves)
    out = problem.call(x, parameters, backend=backend)
    assert same_bits(differentiated(out, leaves, problem.grad_out), expected)
    assert all(torch.equal(leaf, copy) for leaf, copy in zip(leaves, copies, strict=True))


@BACKEND
def test_an_expanded_gradient_is_read_correctly(device, backend):
    problem = draw_problem(SMALL, device)
    problem.grad_out = torch.ones_like(problem.x)
    expected, (x, *parameters) = outcome(problem, backend=backend)["x"], problem.leaves()
    problem.call(x, parameters, backend=backend).sum().backward()
    assert torch.equal(x.grad, expected)


@pytest.mark.parametrize("frozen", [range(1), range(1, 25), range(2, 25, 3)], ids=["x", "all but x", "every third"])
def test_inputs_without_gradients_get_none_and_do_not_change_the_others(device, frozen):
    problem = draw_problem(SMALL, device)
    everything, leaves = problem.leaves(), problem.leaves()
    problem.call(everything[0], everything[1:]).backward(problem.grad_out)
    for k in frozen:
        leaves[k].requires_grad_(False)
    problem.call(leaves[0], leaves[1:]).backward(problem.grad_out)
    for k, (leaf, full) in enumerate(zip(leaves, everything, strict=True)):
        assert leaf.grad is None if k in frozen else torch.equal(leaf.grad, full.grad)


class _Kept(TorchDispatchMode):
    """Counter of the tensors that the operator returns besides its output."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        if func == OPERATOR:
            self.count += len(results) - 1
        return results


@BACKEND
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_nothing_is_saved(device, backend, mode):
    problem = draw_problem(SMALL, device)
    x, *parameters = problem.leaves()
    with _Kept() as with_gradients:
        expected = problem.call(x, parameters, backend=backend)
    with mode(), _Kept() as without:
        found = problem.call(x, parameters, backend=backend)
    assert (with_gradients.count, without.count) == (4 if backend == "fused" else 13, 0)
    assert not found.requires_grad
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_backward_pass_without_saved_tensors_is_a_clear_error(device):
    problem = draw_problem(SMALL, device)
    x, *parameters = problem.leaves()
    out, *_ = OPERATOR(x, parameters, problem.mask, problem.masked, 2, 1e-5, "fp32", "fused", False)
    with pytest.raises(RuntimeError, match="while gradients were off"):
        out.sum().backward()


def test_a_second_derivative_is_a_clear_error(device):
    problem = draw_problem(SMALL, device)
    x, *parameters = problem.leaves()
    (grad,) = torch.autograd.grad(problem.call(x, parameters).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        grad.sum().backward()


@BACKEND
def test_an_empty_batch_gives_an_empty_output_and_zero_gradients(device, backend):
    problem = draw_problem(replace(SMALL, batch=0), device)
    found = outcome(problem, backend=backend)
    assert found["out"].shape == found["x"].shape == (0, 5, 16)
    assert not any(found[name].any() for name in PARAMETERS)
