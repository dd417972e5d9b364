"""The fused encoder's packed parameters, and the launch settings of its kernels."""

import pytest
import torch

pytest.importorskip("triton")

from body_transformer.ops.encoder_stack.fused import passes, sizes

from .encoder_cases import Case, draw_problem


def test_every_parameter_starts_where_the_table_says():
    case = Case(2, 5, 24, 52, 3)
    problem = draw_problem(case)
    one = sizes.FusedSizes.of(problem.x, problem.parameters, case.num_heads)
    flat, _ = passes.pack(problem.parameters, "fp32")
    assert len(flat) == one.num_layers * one.layer_numel
    second = iter(problem.parameters[12:])
    for name, shape in one.shapes.items():
        start = one.layer_numel + one.starts[name]
        found = flat[start : start + torch.Size(shape).numel()].view(shape)
        assert torch.equal(found, next(second))


@pytest.mark.parametrize(
    ("itself", "interpret", "capability", "must"),
    [
        (False, False, (9, 0), True),
        (False, False, (8, 0), False),
        (True, False, (9, 0), False),
        (False, True, (9, 0), False),
    ],
)
def test_kernels_fence_if_triton_does_not_and_the_gpu_supports_it(monkeypatch, itself, interpret, capability, must):
    monkeypatch.setattr(sizes, "FENCES_ITSELF", itself)
    monkeypatch.setattr(sizes.triton.knobs.runtime, "interpret", interpret)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert sizes.must_fence() == must
    constants = sizes.FusedSizes(2, 16, 64, 128, 2).constants("backward", "bf16")
    assert constants["FENCE"] == (must and constants["STAGES"] > 1)
