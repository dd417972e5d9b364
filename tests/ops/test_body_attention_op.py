"""Body attention as a PyTorch operator: tracing, autocast, derivatives."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from body_transformer.ops.body_attention import BACKENDS, body_attention

from .attention_cases import errors, exact, make_problem, outcome, tree

BACKEND = pytest.mark.parametrize("backend", BACKENDS)


@BACKEND
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
def test_pytorchs_own_checks_pass(device, backend, bias):
    problem = make_problem((2, 1, 5, 8), tree(5), bias=bias, device=device)
    q, k, v, *rest = problem.inputs()
    arguments = (q, k, v, problem.mask, *(rest or [None]), backend)
    torch.library.opcheck(torch.ops.body_transformer.body_attention.default, arguments)


@BACKEND
def test_torch_compile_needs_no_graph_break_forward_or_backward(device, backend):
    problem = make_problem((2, 2, 6, 8), tree(6), bias=True, device=device)
    compiled = torch.compile(body_attention, fullgraph=True, backend="aot_eager")
    found = outcome(compiled, problem, backend=backend)
    assert max(errors(found, exact(problem))) < 1e-5


class Layer(nn.Module):
    def __init__(self, mask: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return body_attention(x, x, x, self.mask) * 2


def test_torch_export_supports_any_batch_size():
    layer = Layer(tree(6))
    program = torch.export.export(layer, (torch.randn(3, 2, 6, 8),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for batch in (1, 4):
        x = torch.randn(batch, 2, 6, 8)
        torch.testing.assert_close(program.module()(x), layer(x))


@BACKEND
def test_under_autocast_it_is_computed_in_autocasts_dtype(device, backend):
    problem = make_problem((2, 1, 5, 8), tree(5), bias=True, device=device)
    with torch.autocast(device, torch.bfloat16):
        out, *grads = outcome(
            lambda *args, **options: body_attention(*args, **options).float(), problem, backend=backend
        )
        assert body_attention(problem.q, problem.k, problem.v, problem.mask, backend=backend).dtype == torch.bfloat16
    assert [grad.dtype for grad in grads] == [torch.float32] * 4
    assert max(errors([out, *grads], exact(problem))) < 2e-2  # the inputs are rounded too


@BACKEND
def test_autocast_changes_the_dtype_of_the_inputs_alone(device, backend):
    problem = make_problem((2, 1, 16, 8), tree(16), torch.bfloat16, bias=True, device=device)
    expected = outcome(body_attention, problem, backend=backend)
    with torch.autocast(device, torch.bfloat16):
        found = outcome(body_attention, problem, backend=backend)
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


def test_autocast_does_not_change_float64():
    x = torch.randn(1, 1, 4, 3, dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        assert body_attention(x, x, x, tree(4)).dtype == torch.float64


@BACKEND
def test_a_second_derivative_is_a_clear_error(device, backend):
    problem = make_problem((1, 1, 4, 8), tree(4), device=device)
    q, k, v = problem.inputs()
    (grad,) = torch.autograd.grad(
        body_attention(q, k, v, problem.mask, backend=backend).square().sum(), q, create_graph=True
    )
    with pytest.raises(RuntimeError, match="no second derivative"):
        grad.sum().backward()


def test_importing_it_does_not_import_triton():
    code = "import torch, sys; before = 'triton' in sys.modules; import body_transformer.ops.body_attention\n"
    code += "print(before or 'triton' not in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "True"
