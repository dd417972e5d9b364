"""The peers compute what ours computes: a time of something else is worth nothing."""

import math

import pytest
import torch

from body_transformer.bench.accuracy import output_and_gradients, relative_error, worst
from body_transformer.bench.attention_job import attention_step, backends_on, check, draw_inputs, ours, takes
from body_transformer.bench.attention_peers import PEERS, gather, naive, peer_names
from body_transformer.bench.bodies import MAX_CHILDREN, tree_mask
from body_transformer.bench.encoder_job import EncoderJob, load_subject
from body_transformer.bench.policy import build_policy
from body_transformer.bench.stacks import OURS, PLAIN, CompiledLayer, stack_kinds
from body_transformer.bench.steps import forward_steps, optimiser_steps
from body_transformer.ops.body_attention import reference


@pytest.mark.parametrize("num_nodes", [1, 2, 16, 300])
def test_a_random_body_is_a_tree_with_short_rows(num_nodes: int) -> None:
    mask = tree_mask(num_nodes)
    assert mask.sum() == 3 * num_nodes - 2
    assert mask.diagonal().all()
    assert torch.equal(mask, mask.T)
    assert mask.sum(1).max() <= MAX_CHILDREN + 2
    reach = torch.linalg.matrix_power(mask.double(), num_nodes)
    assert (reach > 0).all()


def test_the_same_seed_is_the_same_body() -> None:
    assert torch.equal(tree_mask(50, seed=3), tree_mask(50, seed=3))
    assert not torch.equal(tree_mask(50, seed=3), tree_mask(50, seed=4))


@pytest.mark.parametrize("make", [naive, gather, PEERS["sdpa"].make, ours], ids=["naive", "gather", "sdpa", "ours"])
def test_masked_peers_agree_with_the_reference_forward_and_backward(make) -> None:
    mask = tree_mask(13)
    (inputs,) = draw_inputs((3, 2, 13, 8), "fp32", "cpu", 1)
    attention = make(mask)
    check(attention, mask, inputs, "fp32")
    grads = attention_step(attention, inputs, "fp32", backward=True)()
    expected = attention_step(lambda q, k, v: reference.body_attention(q, k, v, mask), inputs, "fp32", backward=True)()
    for grad, wanted in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad, wanted, rtol=1e-4, atol=1e-5)


def test_whoever_ignores_the_mask_is_found_out() -> None:
    mask = tree_mask(13)
    (inputs,) = draw_inputs((2, 2, 13, 8), "fp32", "cpu", 1)
    with pytest.raises(ValueError, match="wrong output: relative error"):
        check(PEERS["sdpa_unmasked"].make(mask), mask, inputs, "fp32")


def test_ours_is_held_to_a_closer_bound_than_its_peers() -> None:
    mask = tree_mask(13)
    (inputs,) = draw_inputs((2, 2, 13, 8), "fp32", "cpu", 1)

    def nearly(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return reference.body_attention(q, k, v, mask) * (1 + 1e-4)

    check(nearly, mask, inputs, "fp32")
    with pytest.raises(ValueError, match=r"wrong output: relative error 1\.0e-04, more than 1e-05"):
        check(nearly, mask, inputs, "fp32", is_ours=True)


def test_a_gradient_that_is_wrong_is_found_out() -> None:
    mask = tree_mask(13)
    (inputs,) = draw_inputs((5, 2, 13, 8), "fp32", "cpu", 1)

    def without_keys(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return reference.body_attention(q, k + 0 * k.detach(), v, mask) + (k - k.detach())

    with pytest.raises(ValueError, match=r"wrong gradient of k: relative error .*, more than 1e-05"):
        check(without_keys, mask, inputs, "fp32", is_ours=True)


def test_triton_backends_are_not_timed_in_an_interpreter() -> None:
    assert backends_on("cpu") == ["reference", "neighbours"]
    assert {"triton", "tile"} <= set(backends_on("cuda"))


def test_a_backend_is_not_asked_for_more_than_it_takes() -> None:
    assert takes("tile", (8, 2, 16, 32), "bf16")
    assert not takes("tile", (1, 2, 4096, 32), "bf16")
    assert takes("reference", (1, 2, 4096, 256), "fp32")


def test_compiled_peers_take_the_place_of_their_plain_selves() -> None:
    assert peer_names(compile_peers=False) == ["sdpa_unmasked", "sdpa", "naive", "gather"]
    assert peer_names(compile_peers=True) == ["sdpa_unmasked", "sdpa", "naive_compiled", "flex", "gather_compiled"]


@pytest.fixture(scope="module")
def subject():
    return load_subject(EncoderJob("cpu", [], peers=True, compile_peers=False, quick=True), "humanoid-mod")


def test_the_subject_is_the_experiments_encoder_cut_short(subject) -> None:
    assert subject.weights.masked == [True, False]
    assert len(subject.weights.parameters) == 24
    assert subject.layout.graph.num_nodes == 16


@pytest.mark.parametrize("name", list(stack_kinds(peers=True, compile_peers=False)))
def test_every_encoder_gives_the_same_output_and_gradients(subject, name: str) -> None:
    x, grad = subject.draw(3, 2, seed=0)
    kind = stack_kinds(peers=True, compile_peers=False)[name]
    truth = output_and_gradients(PLAIN.make(subject.weights.double(), "fp32"), x.double(), grad.double(), "fp32")
    found = output_and_gradients(kind.make(subject.weights, "fp32"), x, grad, "fp32")
    shapes = [value.shape for value in truth]
    assert sorted(map(tuple, shapes)) == sorted(tuple(value.shape) for value in found)
    assert relative_error(found[0], truth[0]) < 1e-5
    assert relative_error(found[1], truth[1]) < 1e-4


@pytest.mark.parametrize("name", list(stack_kinds(peers=True, compile_peers=False)))
def test_every_encoder_gives_the_same_output_without_gradients(subject, name: str) -> None:
    inputs = subject.draw(3, 2, seed=0)
    stack = stack_kinds(peers=True, compile_peers=False)[name].make(subject.weights, "fp32")
    exact = PLAIN.make(subject.weights.double(), "fp32")
    for step, x in zip(forward_steps(stack, inputs, "fp32"), inputs, strict=True):
        assert relative_error(step(), exact.forward(x.double())) < 1e-5


def test_an_optimisers_steps_bring_the_loss_down(subject) -> None:
    (x,), (target,) = subject.draw(3, 1, seed=0), subject.draw(3, 1, seed=1)
    stack = OURS.make(subject.weights, "fp32")

    def loss() -> float:
        return float((stack.forward(x) - target).detach().square().mean())

    before = loss()
    (step,) = optimiser_steps(stack, [x], [target], "fp32", torch.optim.AdamW)
    for _ in range(20):
        step()
    assert loss() < before


def test_a_gradient_that_is_not_a_number_is_the_worst() -> None:
    assert worst([1.0, 3.0, 2.0]) == 3.0
    assert math.isnan(worst([1.0, float("nan"), 2.0]))


def test_contenders_have_weights_of_their_own(subject) -> None:
    first, second = OURS.make(subject.weights, "fp32"), OURS.make(subject.weights, "fp32")
    with torch.no_grad():
        first.parameters[0].zero_()
    assert second.parameters[0].abs().sum() > 0
    assert subject.weights.parameters[0].abs().sum() > 0


def test_compiled_encoders_take_part_only_where_asked() -> None:
    assert list(stack_kinds(peers=False, compile_peers=True)) == ["ours"]
    assert "compiled_sdpa" in stack_kinds(peers=True, compile_peers=True)
    assert "compiled_sdpa" not in stack_kinds(peers=True, compile_peers=False)


def test_the_policy_in_compiled_parts_gives_the_same_action(subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)  # takes long; PyTorch tests it
    monkeypatch.setattr(torch.nn.Module, "compile", lambda module, **options: None)
    obs = torch.randn(3, subject.layout.obs_dim)
    wanted = build_policy("reference", subject, "cpu").forward(obs)
    compiled = build_policy("compiled", subject, "cpu")
    assert all(isinstance(layer, CompiledLayer) for layer in compiled.forward.encoder.layers)
    torch.testing.assert_close(compiled.forward(obs), wanted)
