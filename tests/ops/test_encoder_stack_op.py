"""The encoder as a PyTorch operator: tracing, autocast, the choice of backend and precision, bad input."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from body_transformer.ops.encoder_stack import (
    BACKENDS,
    as_residual,
    choose_backend,
    current_precision,
    encoder_stack,
    op,
)

from .encoder_cases import Case, Problem, draw_problem, draw_smooth, errors, exact, outcome

pytest.importorskip("triton")

SMALL = Case(3, 5, 16, 20, 2)
OPERATOR = torch.ops.body_transformer.encoder_stack.default


# -- PyTorch's transforms ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backend", "precision"), [("fused", "fp32"), ("wide", "bf16")])
@pytest.mark.parametrize("save", [True, False], ids=["training", "inference"])
def test_pytorchs_own_checks_pass(device, backend, precision, save):
    """Compare shapes, strides and dtypes of traced and real results, and check that no two tensors share memory."""
    problem = draw_problem(replace(SMALL, num_layers=1), device)
    x, *parameters = problem.leaves() if save else (problem.x, *problem.parameters)
    torch.library.opcheck(OPERATOR, (x, parameters, problem.mask, [True], 2, 1e-5, precision, backend, save))


def test_torch_compile_needs_no_graph_break_forward_or_backward(device):
    problem = draw_smooth(SMALL, device)
    compiled = torch.compile(problem.call, fullgraph=True, backend="aot_eager")
    assert max(errors(outcome(problem, compiled), exact(problem)).values()) < 1e-5


class Stack(nn.Module):
    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.parameters_in_order = nn.ParameterList(problem.parameters)
        self.register_buffer("mask", problem.mask)
        self.masked, self.num_heads = problem.masked, problem.num_heads

    def forward(self, x: Tensor) -> Tensor:
        parameters = list(self.parameters_in_order)
        return encoder_stack(x, parameters, self.mask, self.masked, self.num_heads, backend="fused") * 2


def test_torch_export_supports_any_batch_size(device):
    problem = draw_problem(SMALL, device)
    stack = Stack(problem)
    program = torch.export.export(stack, (problem.x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    graphs = [part.graph for part in program.graph_module.modules() if isinstance(part, torch.fx.GraphModule)]
    assert any(node.target == OPERATOR for graph in graphs for node in graph.nodes)
    for batch in (1, 4):
        x = torch.randn(batch, 5, 16, device=device)
        torch.testing.assert_close(program.module()(x), stack(x))


# -- precision and backend ---------------------------------------------------------------------------------------------


def test_autocast_chooses_the_precision(device):
    problem = draw_problem(SMALL, device)
    expected = problem.call(precision="bf16")
    with torch.autocast(device, torch.bfloat16):
        assert torch.equal(problem.call(precision=None), expected)
        assert not torch.equal(problem.call(precision="fp32"), expected)
        assert problem.call(precision=None).dtype == torch.float32


@pytest.mark.parametrize(("dtype", "precision"), [(torch.bfloat16, "bf16"), (torch.float16, None)])
def test_autocasts_dtype_is_respected(dtype, precision):
    assert current_precision("cpu") == "fp32"
    with torch.autocast("cpu", dtype):
        assert current_precision("cpu") == precision


@pytest.mark.parametrize("allowed", [False, True])
def test_on_a_gpu_tf32_is_used_if_it_is_allowed(allowed):
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        assert current_precision("cuda") == ("tf32" if allowed else "fp32")
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def test_in_float16_the_reference_runs(device, monkeypatch):
    problem, sentinel = draw_problem(SMALL, device), torch.zeros(1)
    monkeypatch.setattr(op.reference, "encoder_stack", lambda *arguments: sentinel)
    with torch.autocast(device, torch.float16):
        assert problem.call(precision=None) is sentinel


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_half_precision_inputs_are_widened_only_under_autocast(dtype):
    x = torch.randn(2, 3).to(dtype)
    assert as_residual(x) is x
    with torch.autocast("cpu", torch.bfloat16):
        assert as_residual(x).dtype == (torch.float32 if dtype.itemsize == 2 else dtype)


@pytest.mark.parametrize(("precision", "autocast"), [("fp32", True), ("tf32", True), ("bf16", False)])
def test_an_explicit_precision_overrides_autocast_in_the_reference_too(monkeypatch, precision, autocast):
    problem, seen = draw_problem(SMALL), []
    monkeypatch.setattr(
        op.reference, "encoder_stack", lambda x, *rest: seen.append(torch.is_autocast_enabled("cpu")) or x
    )
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        problem.call(backend="reference", precision=precision)
    assert seen == [precision == "bf16"]


@pytest.mark.parametrize(
    ("device_type", "sizes", "name"),
    [
        ("cuda", (16, 64, 2, 10), "fused"),
        ("cuda", (32, 128, 2, 62), "fused"),
        ("cuda", (64, 128, 1, 62), "wide"),
        ("cuda", (16, 64, 2, 10, 99), "reference"),
        ("cuda", (32, 320, 5, 16), "wide"),
        ("cuda", (65, 64, 2, 10), "reference"),
        ("cuda", (16, 64, 2, 63), "reference"),
        ("cuda", (16, 8, 2, 10), "reference"),
        ("cuda", (129, 320, 5, 16), "reference"),
        ("cpu", (16, 64, 2, 10), "reference"),
    ],
)
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_the_backend_depends_on_the_sizes(device_type, sizes, name, precision):
    assert choose_backend(device_type, precision, *sizes) == name


def test_without_a_correct_assembler_the_fused_kernels_are_not_used():
    assert choose_backend("cuda", "bf16", 16, 64, 2, 10, sound_ptxas=False) == "reference"
    assert choose_backend("cuda", "bf16", 32, 320, 5, 16, sound_ptxas=False) == "wide"


# -- bad input ---------------------------------------------------------------------------------------------------------

WIDTHS = {"fused": 16, "wide": 136, "reference": 16}

Change = Callable[[dict[str, Any]], dict[str, Any]]
BAD: dict[str, tuple[Change, str]] = {
    "no batch axis": (lambda a: {"x": a["x"][0]}, r"x must be \[B, N, E\].*; got \[5, \d+\]"),
    "no nodes": (lambda a: {"x": a["x"][:, :0]}, r"N and E at least 1; got \[3, 0, \d+\]"),
    "whole numbers": (lambda a: {"x": a["x"].long()}, r"x must be floating point; got torch.int64"),
    "3 heads": (lambda a: {"num_heads": 3}, r"num_heads must divide E = \d+; got 3"),
    "no heads": (lambda a: {"num_heads": 0}, r"num_heads must divide E = \d+; got 0"),
    "no layers": (lambda a: {"masked": [], "parameters": []}, r"0 layers have 12 parameters each; got 0"),
    "a missing parameter": (lambda a: {"parameters": a["parameters"][1:]}, r"2 layers have 12 .* each; got 23"),
    "one layer too many": (lambda a: {"masked": [True] * 3}, r"3 layers have 12 parameters each; got 24"),
    "another width": (
        lambda a: {"parameters": [p[:-1] if k == 2 else p for k, p in enumerate(a["parameters"])]},
        r"attention.out_proj.weight of layer 0 must be \[(\d+), \1\]; got \[\d+, \d+\]",
    ),
    "a number for a bias": (
        lambda a: {"parameters": [p[0] if k == 7 else p for k, p in enumerate(a["parameters"])]},
        r"linear1.bias of layer 0 must be \[20\]; got \[\]",
    ),
    "another hidden width": (
        lambda a: {"parameters": [p[:-1] if k == 19 else p for k, p in enumerate(a["parameters"])]},
        r"linear1.bias of layer 1 must be \[20\]; got \[19\]",
    ),
    "another type": (
        lambda a: {"parameters": [p.double() if k == 5 else p for k, p in enumerate(a["parameters"])]},
        r"norm1.bias of layer 0 must be torch.float32 on .*, as x is; got torch.float64",
    ),
    "a parameter elsewhere": (
        lambda a: {"parameters": [p.to("meta") if k == 23 else p for k, p in enumerate(a["parameters"])]},
        r"norm2.bias of layer 1 must be .*, as x is; got torch.float32 on meta",
    ),
    "a float mask": (lambda a: {"mask": a["mask"].float()}, r"mask must be bool \[5, 5\]; got torch.float32"),
    "a small mask": (lambda a: {"mask": a["mask"][1:, 1:]}, r"mask must be bool \[5, 5\]; got torch.bool \[4, 4\]"),
    "a mask per sample": (lambda a: {"mask": a["mask"].expand(3, 5, 5)}, r"must be bool \[5, 5\]; got .* \[3, 5, 5\]"),
    "a mask elsewhere": (lambda a: {"mask": a["mask"].to("meta")}, r"mask must be on the device of x, .* on meta"),
    "no self-loop": (
        lambda a: {"mask": a["mask"] & (torch.arange(5, device=a["mask"].device) != 3)},
        r"every node must attend to itself; mask\[3, 3\] is False",
    ),
    "an unknown precision": (lambda a: {"precision": "fp8"}, r"unknown precision 'fp8'; have: 'fp32', 'tf32', 'bf16'"),
}


def arguments_of(problem: Problem, **others: Any) -> dict[str, Any]:
    own = {name: getattr(problem, name) for name in ("x", "parameters", "mask", "masked", "num_heads")}
    return own | others


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("backend", WIDTHS)
def test_every_backend_refuses_bad_input_with_the_same_message(device, backend, bad):
    problem = draw_problem(replace(SMALL, embed_dim=WIDTHS[backend]), device)
    arguments = arguments_of(problem, precision="fp32", backend=backend)
    change, words = BAD[bad]
    with pytest.raises(ValueError, match=words):
        encoder_stack(**arguments | change(arguments))


def test_an_unknown_backend_is_refused():
    with pytest.raises(ValueError, match="unknown backend 'fast'; have: 'fused', 'wide', 'reference'"):
        draw_problem(SMALL).call(backend="fast")


@pytest.mark.parametrize(
    ("backend", "case"),
    [
        ("fused", Case(1, 65, 16, 8, 1, 1)),
        ("fused", Case(1, 2, 15, 8, 1, 1)),
        ("fused", Case(1, 2, 129, 8, 3, 1)),
        ("fused", Case(1, 2, 16, 8, 1, 63)),
        ("wide", Case(1, 129, 130, 8, 2, 1)),
        ("wide", Case(1, 2, 8, 8, 2, 1)),
        ("wide", Case(1, 2, 130, 8, 1, 1)),
    ],
    ids=str,
)
def test_sizes_beyond_a_backend_are_refused_with_its_limits(device, backend, case):
    row = BACKENDS[backend]
    limits = f"widths of {row.embed_dim[0]} to {row.embed_dim[1]}, up to {row.max_nodes} nodes"
    given = f"got N = {case.num_nodes}, E = {case.embed_dim}, {case.num_heads} heads, {case.num_layers} layers"
    with pytest.raises(ValueError, match=f"backend '{backend}' takes {limits}.*{given}"):
        draw_problem(case, device).call(backend=backend)


@pytest.mark.parametrize("backend", ["fused", "wide"])
def test_a_missing_requirement_of_a_kernel_backend_is_named(backend, monkeypatch):
    problem = draw_problem(replace(SMALL, embed_dim=WIDTHS[backend]))
    double = [parameter.double() for parameter in problem.parameters]
    with pytest.raises(ValueError, match=f"'{backend}' takes float32; x is torch.float64"):
        problem.call(problem.x.double(), double, backend=backend)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match=f"'{backend}' runs on cuda; x is on cpu"):
        problem.call(backend=backend)
    monkeypatch.setattr("body_transformer.ops.dispatch.HAS_TRITON", False)
    with pytest.raises(ValueError, match=f"'{backend}' needs the package triton"):
        problem.call(backend=backend)
