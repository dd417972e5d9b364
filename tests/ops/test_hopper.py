"""The results of the kernels for small bodies, without a GPU. Their accuracy on a GPU is tested in tests/gpu."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from body_transformer.ops.encoder_stack import PARAMETERS, packing
from body_transformer.ops.encoder_stack.fused import passes as general
from body_transformer.ops.encoder_stack.hopper import passes, sizes
from body_transformer.ops.encoder_stack.hopper.layouts import column
from body_transformer.ops.encoder_stack.packing import Call, EncoderSizes, allocate_saved, pack, parameter_gradients

from .encoder_cases import Case, Problem, draw_problem, errors, exact, named, plain, poisoned_memory, same_bits
from .gluon_on_cpu import LANGUAGE, as_python, on_cpu

PAPER = Case(5, 16, 64, 128, 2, 3)
CASES = [
    PAPER,
    replace(PAPER, batch=9, pattern="hard", mask="asymmetric"),
    Case(21, 13, 64, 128, 2, 2, "hard", "star"),
    Case(9, 5, 64, 128, 2, 2, "unmasked", "all ones"),
    Case(7, 1, 64, 128, 2, 1, "hard", "identity"),
    Case(130, 16, 64, 128, 2, 2),  # several sums over rows
]


@pytest.fixture(autouse=True)
def _poisoned():
    with poisoned_memory(), on_cpu(passes):
        yield


def call_of(problem: Problem) -> Call:
    return Call(problem.mask, problem.masked, problem.num_heads, 1e-5, "bf16")


def run(problem: Problem) -> dict[str, Tensor]:
    """Return the outcome of the kernels for small bodies, in the form of `encoder_cases.outcome`."""
    call = call_of(problem)
    shape = EncoderSizes.of(problem.x, problem.parameters, problem.num_heads)
    out, *kept = passes.forward(problem.x, problem.parameters, call, shape, save=True)
    grad_x, row = passes.backward(problem.grad_out, kept, call, shape)
    return named(out, grad_x, *parameter_gradients([row], problem.parameters))


def infer(problem: Problem) -> Tensor:
    shape = EncoderSizes.of(problem.x, problem.parameters, problem.num_heads)
    (out,) = passes.forward(problem.x, problem.parameters, call_of(problem), shape, save=False)
    return out


@pytest.mark.parametrize("case", CASES, ids=str)
def test_output_and_every_gradient_are_as_accurate_as_pytorchs_in_bfloat16(case):
    ours, theirs = dict.fromkeys(("out", "x", *PARAMETERS), 0.0), dict.fromkeys(("out", "x", *PARAMETERS), 3e-4)
    for seed in range(3):
        problem = draw_problem(case, seed=seed)
        expected = exact(problem)
        for total, found in ((ours, run(problem)), (theirs, plain(problem, autocast=torch.bfloat16))):
            for name, error in errors(found, expected).items():
                total[name] += error
    ratios = {name: ours[name] / theirs[name] for name in ours}  # sums of errors: a single problem may have nearly none
    assert all(ratio <= 1.5 for ratio in ratios.values()), ratios


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(("programs", "at_once"), [(132, 4), (7, 1), (26, 2)])
def test_without_rounding_every_gradient_is_exact(monkeypatch, case, programs, at_once):
    rows = case.batch * case.num_nodes
    monkeypatch.setattr(sizes, "PROGRAMS", programs)
    monkeypatch.setattr(sizes, "MIN_ROWS", 16)
    monkeypatch.setitem(sizes.TOTAL, "ROWS", 2)
    monkeypatch.setattr(packing, "FACTOR_BYTES", at_once * 6 * 64 * 8 * rows)
    for name in ("bfloat16", "float32"):
        monkeypatch.setitem(LANGUAGE, name, torch.float64)
    monkeypatch.setattr(passes, "pack", lambda given, precision: pack(given, "fp32"))
    monkeypatch.setattr(
        passes, "allocate_saved", lambda x, shape, dtype, **options: allocate_saved(x, shape, x.dtype, **options)
    )
    problem = draw_problem(case, seed=0)
    whole = [t.double() for t in problem.parameters]
    problem = replace(problem, x=problem.x.double(), parameters=whole, grad_out=problem.grad_out.double())
    found = run(problem)
    wrong = errors(found, exact(problem))
    assert max(wrong.values()) < 1e-12, wrong
    assert found["attention.in_proj.bias"][:, 64:128].abs().max() < 1e-12  # the keys' bias, which `errors` leaves out


@pytest.mark.parametrize("at_once", [1, 2])
def test_gradients_do_not_depend_on_the_number_of_layers_at_a_time(monkeypatch, at_once):
    problem = draw_problem(PAPER, seed=0)
    expected = run(problem)
    rows = problem.x.shape[0] * problem.x.shape[1]
    monkeypatch.setattr(packing, "FACTOR_BYTES", at_once * 6 * 64 * 2 * rows)
    assert same_bits(run(problem), expected)


@pytest.mark.parametrize("programs", [4, 10, 26])
def test_the_number_of_sums_changes_only_rounding(monkeypatch, programs):
    problem = draw_problem(Case(130, 16, 64, 128, 2, 2), seed=0)
    expected = run(problem)
    monkeypatch.setattr(sizes, "PROGRAMS", programs)
    monkeypatch.setattr(sizes, "MIN_ROWS", 64)
    shares = sizes.shares(EncoderSizes(2, 16, 64, 128, 2), 2, 130 * 16)
    assert sum(shares) == programs // 2
    assert shares[0] != shares[1] or programs == 4
    assert max(errors(run(problem), expected).values()) < 1e-6


def test_inference_gives_the_same_output_as_training():
    problem = draw_problem(PAPER, seed=0)
    assert torch.equal(infer(problem), run(problem)["out"])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_sample_that_is_not_finite_does_not_change_others(bad):
    problem = draw_problem(replace(PAPER, batch=12), seed=0)
    expected = run(problem)
    problem.x[7, 3, 5] = bad
    found = run(problem)
    others = [k for k in range(12) if k != 7]
    for name in ("out", "x"):
        assert torch.equal(found[name][others], expected[name][others])
        assert found[name][7].isnan().any()
    assert found["linear1.weight"].isnan().any()


def test_a_node_depends_only_on_the_nodes_that_its_mask_allows():
    problem = draw_problem(Case(2, 16, 64, 128, 2, 1, "hard", "tree"), seed=0)
    before = infer(problem)
    problem.x[:, 4] += 1.0
    changed = (infer(problem) != before).any(dim=2).all(dim=0)
    assert torch.equal(changed, problem.mask[:, 4])


@pytest.mark.parametrize("width", [32, 64, 128])
def test_the_order_of_columns_in_memory_is_its_own_inverse(width):
    places = torch.arange(width)
    columns = as_python(column, SimpleNamespace(**LANGUAGE))(places)
    assert sorted(columns.tolist()) == places.tolist()
    assert torch.equal(as_python(column, SimpleNamespace(**LANGUAGE))(columns), places)


SHAPE = EncoderSizes(10, 16, 64, 128, 2)


@pytest.mark.parametrize(
    ("changes", "precision", "supported"),
    [
        ({}, "bf16", True),
        ({"num_nodes": 1}, "bf16", True),
        ({"embed_dim": 32, "num_heads": 1}, "bf16", False),
        ({"ff_dim": 64}, "bf16", False),
        ({}, "tf32", False),
        ({}, "fp32", False),
        ({"num_nodes": 17}, "bf16", False),
        ({"num_heads": 4}, "bf16", False),  # heads of 16
        ({"embed_dim": 128, "num_heads": 4}, "bf16", False),
        ({"num_heads": 1}, "bf16", False),  # a head of 64
        ({"ff_dim": 100}, "bf16", False),
        ({"ff_dim": 256}, "bf16", False),
    ],
    ids=str,
)
def test_only_the_papers_sizes_in_bfloat16_are_supported(monkeypatch, changes, precision, supported):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(sizes.triton.knobs.runtime, "interpret", False)
    assert sizes.supports(replace(SHAPE, **changes), precision, torch.device("cuda")) is supported


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (10, 0), (12, 0)])
def test_gpus_other_than_hopper_use_the_general_kernels(monkeypatch, capability):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(sizes.triton.knobs.runtime, "interpret", False)
    assert not sizes.supports(SHAPE, "bf16", torch.device("cuda"))


@pytest.mark.parametrize("num_layers", [1, 10, 62])
@pytest.mark.parametrize("batch", [1, 8192, 60_000, 4_000_000])
def test_sums_fill_the_gpu_and_are_neither_too_long_nor_too_large(num_layers, batch):
    shape = replace(SHAPE, num_layers=num_layers)
    for at_once in {1, num_layers}:
        found = sizes.shares(shape, at_once, 16 * batch)
        assert 16 * batch * 3 * 64 / min(found) < 2**31
        assert max(found) * num_layers * shape.layer_numel <= 2**26 or batch == 4_000_000
        if batch == 60_000 and num_layers < 62:
            assert 100 <= sum(found) * at_once <= 132
            assert found[0] < found[1]  # the feed-forward part's sums take more time


def test_without_gluon_the_general_kernels_are_used(monkeypatch):
    def none_there(name):
        raise ModuleNotFoundError(name)

    assert sizes.has_gluon()
    monkeypatch.setattr(sizes, "find_spec", none_there)
    assert not sizes.has_gluon()
    monkeypatch.setattr(sizes, "HAS_GLUON", False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(sizes.triton.knobs.runtime, "interpret", False)
    assert not sizes.supports(SHAPE, "bf16", torch.device("cuda"))


def test_on_a_cpu_the_general_kernels_are_used():
    assert not sizes.supports(SHAPE, "bf16", torch.device("cpu"))


def test_traced_tensors_match_the_saved_ones(monkeypatch):
    problem = draw_problem(PAPER, seed=0)
    shape = EncoderSizes.of(problem.x, problem.parameters, problem.num_heads)
    found = passes.forward(problem.x, problem.parameters, call_of(problem), shape, save=True)
    monkeypatch.setattr(general, "hopper_supports", lambda *args: True)
    traced = general.fake_forward(problem.x, problem.parameters, problem.num_heads, "bf16", save=True)
    assert [(x.shape, x.dtype) for x in traced] == [(x.shape, x.dtype) for x in found]
