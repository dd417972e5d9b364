"""Timed encoders and policies: equal results, and the names of the operators that ran."""

import math

import pytest
import torch

from body_transformer.bench.accuracy import relative_error, worst
from body_transformer.bench.encoder import entrants_of
from body_transformer.bench.encoder_peers import ENCODERS, PLAIN, POLICIES, PlainEncoder, chosen_kinds, load_timed
from body_transformer.bench.harness import Bench
from body_transformer.bench.steps import NO_OPERATOR, forward_steps, optimizer_steps, output_and_gradients, what_ran
from body_transformer.ops.body_attention import body_attention

EAGER = chosen_kinds(ENCODERS, Bench(device="cpu"))


@pytest.fixture(scope="module")
def timed():
    return load_timed("humanoid-mod", "cpu", max_layers=2)


def test_the_timed_encoder_is_the_experiments_cut_to_two_layers(timed) -> None:
    assert timed.encoder.masked == [True, False]
    assert len(list(timed.encoder.layers.parameters())) == 24
    assert timed.layout.graph.num_nodes == 16


@pytest.mark.parametrize("name", list(EAGER))
def test_every_encoder_gives_the_same_output_and_gradients(timed, name: str) -> None:
    x, grad = timed.draw(3, 2, seed=0)
    exact = PLAIN.make(timed.in_float64())
    truth = output_and_gradients(exact, (x.double().requires_grad_(),), grad.double(), "fp32")
    found = output_and_gradients(EAGER[name].make(timed), (x.requires_grad_(),), grad, "fp32")
    shapes = [value.shape for value in truth]
    assert sorted(map(tuple, shapes)) == sorted(tuple(value.shape) for value in found)
    assert relative_error(found[0], truth[0]) < 1e-5
    assert relative_error(found[1], truth[1]) < 1e-4


@pytest.mark.parametrize("name", list(EAGER))
def test_every_encoder_gives_the_same_output_without_gradients(timed, name: str) -> None:
    inputs = timed.draw(3, 2, seed=0)
    model, exact = EAGER[name].make(timed), PLAIN.make(timed.in_float64())
    for step, x in zip(forward_steps(model, inputs, "fp32"), inputs, strict=True):
        assert relative_error(step(), exact.forward(x.double())) < 1e-5


def test_optimizer_steps_reduce_the_loss(timed) -> None:
    (x,), (target,) = timed.draw(3, 1, seed=0), timed.draw(3, 1, seed=1)
    model = ENCODERS["ours"].make(timed)

    def loss() -> float:
        return float((model.forward(x) - target).detach().square().mean())

    before = loss()
    (step,) = optimizer_steps(model, [x], [target], "fp32", torch.optim.AdamW)
    for _ in range(20):
        step()
    assert loss() < before


def test_a_nan_counts_as_the_worst_error() -> None:
    assert worst([1.0, 3.0, 2.0]) == 3.0
    assert math.isnan(worst([1.0, float("nan"), 2.0]))


def test_contenders_do_not_share_weights(timed) -> None:
    first, second = ENCODERS["ours"].make(timed), ENCODERS["ours"].make(timed)
    with torch.no_grad():
        first.parameters[0].zero_()
    assert second.parameters[0].abs().sum() > 0
    assert next(timed.encoder.layers.parameters()).abs().sum() > 0


def test_compiled_encoders_are_timed_only_on_request() -> None:
    assert list(chosen_kinds(ENCODERS, Bench(device="cpu", peers=False, compile_peers=True))) == ["ours"]
    assert "compiled_sdpa" in chosen_kinds(ENCODERS, Bench(device="cpu", compile_peers=True))
    assert "compiled_sdpa" not in EAGER


def test_the_policy_in_compiled_parts_gives_the_same_action(timed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch, "compile", lambda function, **options: function
    )  # compiling takes long, and PyTorch tests it
    monkeypatch.setattr(torch.nn.Module, "compile", lambda module, **options: None)
    obs = torch.randn(3, timed.layout.obs_dim)
    wanted = POLICIES["reference"].make(timed).forward(obs)
    compiled = POLICIES["compiled"].make(timed)
    assert isinstance(compiled.forward.encoder, PlainEncoder)
    torch.testing.assert_close(compiled.forward(obs), wanted)


# -- operators that ran ------------------------------------------------------------------------------------------------


def test_an_operator_is_recorded_with_its_backend() -> None:
    q, mask = torch.randn(2, 1, 5, 8), torch.eye(5, dtype=torch.bool)
    assert what_ran(lambda: body_attention(q, q, q, mask, backend="neighbours")) == "body_attention neighbours"
    assert what_ran(lambda: q + 1) == NO_OPERATOR


def test_the_encoder_is_recorded_with_backend_and_precision(device: str) -> None:
    model = POLICIES["ours"].make(load_timed("humanoid-mod", device, max_layers=2))
    model.forward.encoder.backend = "fused"
    obs = torch.randn(2, model.forward.layout.obs_dim, device=device)
    with torch.autocast(device, enabled=False):
        assert what_ran(lambda: model.forward(obs)) == "encoder_stack fused fp32"


def test_the_policy_is_compiled_only_in_the_fastest_precision() -> None:
    named = entrants_of(chosen_kinds(POLICIES, Bench(device="cuda", compile_peers=True)), "cuda")
    assert [precision for name, precision in named if name == "compiled"] == ["bf16"]
    assert [precision for name, precision in named if name == "ours"] == ["bf16", "tf32"]
    alone = entrants_of(chosen_kinds(POLICIES, Bench(device="cuda", peers=False)), "cuda")
    assert {name for name, _ in alone} == {"ours"}
