"""Peers of masked attention, which are timed only if their output is correct."""

from functools import partial

import pytest
import torch

from body_transformer.bench.accuracy import check
from body_transformer.bench.attention_peers import (
    PEERS,
    attention_steps,
    backends_on,
    chosen_kinds,
    draw_inputs,
    gather,
    naive,
    ours,
)
from body_transformer.bench.masks import tree_mask
from body_transformer.ops.body_attention import reference


@pytest.mark.parametrize("make", [naive, gather, PEERS["sdpa"].make, ours], ids=["naive", "gather", "sdpa", "ours"])
def test_masked_peers_agree_with_the_reference_forward_and_backward(make) -> None:
    mask = tree_mask(13)
    (inputs,) = draw_inputs((3, 2, 13, 8), "fp32", "cpu", 1)
    attention = make(mask)
    check(attention, mask, inputs, "fp32")
    exact = partial(reference.body_attention, mask=mask)
    grads, expected = (attention_steps(one, [inputs], "fp32", backward=True)[0]() for one in (attention, exact))
    for grad, wanted in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad, wanted, rtol=1e-4, atol=1e-5)


def test_an_attention_that_ignores_the_mask_is_refused() -> None:
    mask = tree_mask(13)
    (inputs,) = draw_inputs((2, 2, 13, 8), "fp32", "cpu", 1)
    with pytest.raises(ValueError, match="wrong output: relative error"):
        check(PEERS["sdpa_unmasked"].make(mask), mask, inputs, "fp32")


def test_our_attention_has_a_lower_tolerance_than_its_peers() -> None:
    mask = tree_mask(13)
    (inputs,) = draw_inputs((2, 2, 13, 8), "fp32", "cpu", 1)

    def nearly(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return reference.body_attention(q, k, v, mask) * (1 + 1e-4)

    check(nearly, mask, inputs, "fp32")
    with pytest.raises(ValueError, match=r"wrong output: relative error 1\.0e-04; at most 1e-05"):
        check(nearly, mask, inputs, "fp32", is_ours=True)


def test_a_wrong_gradient_is_refused() -> None:
    mask = tree_mask(13)
    (inputs,) = draw_inputs((5, 2, 13, 8), "fp32", "cpu", 1)

    def without_keys(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return reference.body_attention(q, k + 0 * k.detach(), v, mask) + (k - k.detach())

    with pytest.raises(ValueError, match=r"wrong gradient of k: relative error .*; at most 1e-05"):
        check(without_keys, mask, inputs, "fp32", is_ours=True)


def test_triton_backends_are_not_timed_in_an_interpreter() -> None:
    assert backends_on("cpu") == ["reference", "neighbours"]
    assert {"triton", "tile"} <= set(backends_on("cuda"))


def test_compiled_peers_replace_their_eager_forms() -> None:
    eager, compiled = (list(chosen_kinds("cpu", compile_peers=compile_peers)) for compile_peers in (False, True))
    own = ["ours", "reference", "neighbours"]
    assert eager == ["sdpa_unmasked", "sdpa", "naive", "gather", *own]
    assert compiled == ["sdpa_unmasked", "sdpa", "naive_compiled", "flex", "gather_compiled", *own]
    assert list(chosen_kinds("cpu", peers=False)) == own
