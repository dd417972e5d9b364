"""The states of the random number generators in a checkpoint."""

import random

import numpy as np
import pytest
import torch

from body_transformer.training.random_state import CPU, NUMPY, random_state, restore_random_state


def draws() -> list[float]:
    return [float(torch.rand(())), np.random.rand(), random.random()]  # noqa: NPY002


@pytest.mark.parametrize("pending", [False, True], ids=["no pending normal", "a pending normal"])
def test_restored_generators_repeat_their_numbers(pending):
    for _ in range(int(pending)):
        np.random.randn(), random.gauss(0, 1)  # noqa: NPY002, the second of a pair of normal numbers is kept
    saved = random_state("cpu")
    expected = [*draws(), np.random.randn(), random.gauss(0, 1)]  # noqa: NPY002
    restore_random_state(saved, "cpu")
    assert [*draws(), np.random.randn(), random.gauss(0, 1)] == expected  # noqa: NPY002


def test_an_older_state_sets_the_generators_that_it_has():
    saved = {name: value for name, value in random_state("cpu").items() if name == "random.cpu"}
    expected = torch.rand(())
    restore_random_state(saved, "cpu")
    assert torch.rand(()) == expected


def test_a_damaged_state_is_refused():
    with pytest.raises(ValueError, match="must have 625 words; got 3"):
        restore_random_state(random_state("cpu") | {NUMPY: torch.arange(5)}, "cpu")


@pytest.mark.parametrize(
    "state",
    [{}, {CPU: torch.zeros(3, dtype=torch.uint8)}, {CPU: torch.get_rng_state().float()}],
    ids=["none", "short", "floats"],
)
def test_a_state_that_pytorch_cannot_take_is_refused(state):
    with pytest.raises(ValueError, match=r"random.cpu in the checkpoint must be torch.uint8 \[\d+\]; got "):
        restore_random_state(state, "cpu")
