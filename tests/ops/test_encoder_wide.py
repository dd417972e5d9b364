"""Parts of the wide encoder: runs of layers, kernels at shapes that small encoders lack, the process-wide TF32 flag."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from body_transformer.ops.encoder_stack.wide import gradients, rows
from body_transformer.ops.encoder_stack.wide.products import float32_products
from body_transformer.ops.encoder_stack.wide.storage import Activations, Norm

from .encoder_cases import Case, draw_problem, errors, outcome

EPS = 1e-5
WIDTHS = {"narrow": 24, "a power of two": 128, "between two": 200, "wide": 1000}


@pytest.mark.parametrize(("run_bytes", "at_once"), [(2**30, 3), (2**15, 2), (1, 1)])
def test_gradients_do_not_depend_on_the_number_of_layers_at_a_time(monkeypatch, run_bytes, at_once, device):
    case = Case(3, 5, 48, 100, 3, 3)
    problem = draw_problem(case, device)
    whole = outcome(problem, backend="wide")
    monkeypatch.setattr(gradients, "MAX_RUN_BYTES", run_bytes)
    kept = Activations.empty(case.num_layers, problem.x, case.ff_dim, torch.float32)
    assert gradients.layers_at_once(kept) == at_once
    assert max(errors(outcome(problem, backend="wide"), whole).values()) < 1e-6


def test_all_sixteen_layers_of_the_imitation_size_are_computed_at_once_in_bfloat16() -> None:
    x = torch.empty(256, 32, 320, device="meta")
    assert gradients.layers_at_once(Activations.empty(16, x, 1024, torch.bfloat16)) == 16
    assert gradients.layers_at_once(Activations.empty(16, x, 1024, torch.float32)) == 8


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_residual_sum_is_normalised_at_any_width(width: int, dtype: torch.dtype, device: str) -> None:
    torch.manual_seed(0)
    update, value = torch.randn(2, 7, width, device=device).to(dtype)
    rest = (0.001 * torch.randn(7, width, device=device)).to(dtype)
    bias, weight, shift = torch.randn(3, width, device=device)
    out, out_rest, normal = (torch.full_like(update, torch.nan) for _ in range(3))
    scale = torch.full((7,), torch.nan, device=device)
    stream, result, norm = rows.Stream(value, rest), rows.Stream(out, out_rest), Norm(normal, scale)
    rows.add_norm(update, bias, stream, weight, shift, result, norm, EPS)
    total = update.double() + value.double() + rest.double() + bias.double()
    exact = F.layer_norm(total, (width,), weight.double(), shift.double(), EPS)
    torch.testing.assert_close(out.double() + out_rest.double(), exact, atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(normal.double(), F.layer_norm(total, (width,), eps=EPS), atol=5e-3, rtol=5e-3)
    torch.testing.assert_close(scale.double(), (total.var(1, correction=0) + EPS).rsqrt(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS.keys())
def test_a_program_with_many_tiles_gives_the_correct_gradient_and_sums(width: int, stages: int, device: str) -> None:
    torch.manual_seed(0)
    num_rows, programs = 13, 2
    x, first, second = torch.randn(3, num_rows, width, dtype=torch.float64, device=device)
    weight = torch.randn(width, dtype=torch.float64, device=device)
    scale = (x.var(1, correction=0) + EPS).rsqrt()
    norm = Norm(((x - x.mean(1, keepdim=True)) * scale[:, None]).float(), scale.float())
    leaves = [t.requires_grad_() for t in (x, weight, torch.zeros_like(weight))]
    found = F.layer_norm(leaves[0], (width,), *leaves[1:], EPS)
    exact, *exact_sums = torch.autograd.grad(found, leaves, first + second)
    out = torch.full((num_rows, width), torch.nan, device=device)
    sums = torch.full((programs, 3, width), torch.nan, device=device)
    tiles = rows.Tiles(2 * width, warps=1, programs=programs, stages=stages)
    rows.norm_backward(first.float(), second.float(), norm, weight.detach().float(), out, sums, tiles)
    torch.testing.assert_close(out.double(), exact, atol=1e-5, rtol=1e-5)
    wanted = torch.stack([*exact_sums, exact.sum(0)])
    torch.testing.assert_close(sums.sum(0).double(), wanted, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_inactive_relu_clears_the_gradient_and_its_sums(stages: int, dtype: torch.dtype, device: str) -> None:
    torch.manual_seed(0)
    gradient, hidden = torch.randn(2, 37, 24, device=device).to(dtype)
    hidden = hidden.relu()
    kept = torch.where(hidden > 0, gradient, 0)
    sums = torch.full((3, 24), torch.nan, device=device)
    rows.relu_backward(gradient, hidden, sums, rows.Tiles(64, warps=1, programs=3, stages=stages, columns=16))
    assert torch.equal(gradient, kept)
    torch.testing.assert_close(sums.sum(0), kept.float().sum(0), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_the_setting_of_float32_products_is_restored(precision: str, allowed: bool) -> None:
    before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, allowed
    try:
        with float32_products(precision):
            inside = torch.backends.cuda.matmul.allow_tf32
        assert inside == {"fp32": False, "tf32": True, "bf16": allowed}[precision]
        assert torch.backends.cuda.matmul.allow_tf32 == allowed
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
