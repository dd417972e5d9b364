import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from body_transformer.model.normalizer import Normalizer, RunningStatistics

from .bodies import some


def normalizer_for(data: torch.Tensor, clip: float | None = None) -> Normalizer:
    """Return a normaliser with the statistics of the data, computed in batches."""
    running = RunningStatistics(data.shape[1])
    for batch in data.split(37):
        running.update(batch)
    normalizer = Normalizer(data.shape[1], clip)
    normalizer.set_statistics(running.mean, running.var)
    return normalizer


def test_without_statistics_observations_do_not_change():
    obs = torch.randn(4, 3) * 1000
    assert torch.equal(Normalizer(3)(obs), obs)


def test_the_clip_applies_even_without_statistics():
    assert Normalizer(2, clip=5.0)(torch.tensor([[-7.0, 3.0]])).tolist() == [[-5.0, 3.0]]


def test_normalized_data_have_mean_0_and_standard_deviation_1():
    torch.manual_seed(0)
    data = torch.randn(500, 4) * torch.tensor([1e-4, 1.0, 30.0, 1e4]) + torch.tensor([0.0, 100.0, -5.0, 1e5])
    scores = normalizer_for(data)(data).double()
    torch.testing.assert_close(scores.mean(0), torch.zeros(4, dtype=torch.float64), atol=1e-4, rtol=0)
    torch.testing.assert_close(scores.std(0, correction=0), torch.ones(4, dtype=torch.float64), atol=1e-4, rtol=0)


def test_normalised_observations_are_clipped():
    normalizer = Normalizer(1, clip=2.0)
    normalizer.set_statistics(torch.tensor([10.0]), torch.tensor([4.0]))
    assert normalizer(torch.tensor([[0.0], [8.0], [12.0], [20.0]])).flatten().tolist() == [-2.0, -1.0, 1.0, 2.0]


@pytest.mark.parametrize("count", [1, 2, 10, 1000, 20000])
@pytest.mark.parametrize("value", [0.0, 0.1, -3.3e-3, 1234.567, 1e6 + 0.3, -7.7e8, 7e30, 1e-30])
def test_a_constant_entry_is_shifted_to_zero_and_not_scaled(value, count):
    data = torch.full((count, 1), value)  # in single precision, numbers such as 0.1 are rounded
    normalizer = normalizer_for(data)
    assert normalizer.scale.item() == 1
    assert normalizer(data[:1]).item() == 0
    assert normalizer(torch.tensor([[value]]) + 1).item() == pytest.approx(1, abs=2e-7 * abs(value))


@pytest.mark.parametrize("count", [2, 10, 1000, 20000])
@pytest.mark.parametrize("value", [0.1, 1234.567, 1e6 + 0.3])
def test_a_constant_entry_is_not_scaled_by_statistics_that_were_rounded_to_single_precision(value, count):
    data = torch.full((count, 1), value)
    normalizer = Normalizer(1)
    normalizer.set_statistics(data.mean(0), data.var(0, correction=0))
    assert normalizer.scale.item() == 1


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1e-6), (1.0, 1e-3), (1e4, 1.0), (1e6, 100.0)])
def test_an_entry_that_varies_little_is_still_scaled(mean, std):
    normalizer = Normalizer(1)
    normalizer.set_statistics(torch.tensor([mean]), torch.tensor([std]).square())
    assert normalizer.scale.item() == pytest.approx(std)


def test_only_varying_entries_are_scaled():
    normalizer = Normalizer(3)
    normalizer.set_statistics(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 0.0, 9.0]))
    assert normalizer(torch.tensor([[3.0, 5.0, 0.0]])).tolist() == [[1.0, 3.0, -1.0]]


def test_statistics_are_saved_with_the_weights_and_not_trained():
    normalizer = Normalizer(3)
    assert set(normalizer.state_dict()) == {"shift", "scale"}
    assert list(normalizer.parameters()) == []


@pytest.mark.parametrize(
    ("mean", "var", "message"),
    [
        (torch.zeros(2), torch.ones(3), r"mean must have shape \[3\]; got \[2\]"),
        (torch.zeros(3), torch.ones(3, 1), r"var must have shape \[3\]; got \[3, 1\]"),
        (torch.tensor([0, torch.nan, 0]), torch.ones(3), r"mean has entries that are not finite: \[1\]"),
        (torch.zeros(3), torch.tensor([torch.inf, 1, torch.nan]), r"var has entries that are not finite: \[0, 2\]"),
        (torch.zeros(3), torch.tensor([1.0, 1.0, -1e-9]), r"var has negative entries: \[2\]"),
    ],
)
def test_invalid_statistics_are_refused_and_change_nothing(mean, var, message):
    normalizer = Normalizer(3)
    with pytest.raises(ValueError, match=message):
        normalizer.set_statistics(mean, var)
    assert not normalizer.shift.any()
    assert (normalizer.scale == 1).all()


# -- RunningStatistics -------------------------------------------------------------------------------------------------


@some
@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=8).filter(any),
    st.floats(-1e4, 1e4),
    st.floats(1e-2, 1e3),
    st.integers(0, 1000),
)
def test_running_statistics_equal_numpys_however_the_data_are_split(sizes, mean, std, seed):
    data = np.random.default_rng(seed).normal(mean, std, (sum(sizes), 3))
    running = RunningStatistics(3)
    for batch in np.split(data, np.cumsum(sizes)[:-1]):
        running.update(torch.from_numpy(batch))
    assert running.count == len(data)
    np.testing.assert_allclose(running.mean, data.mean(0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(running.var, data.var(0), rtol=1e-7, atol=1e-12)


def test_single_precision_data_are_summed_in_double():
    data = torch.full((1000, 1), 0.1) + 1e4 * (torch.arange(1000) % 2 == 0)[:, None]
    running = RunningStatistics(1)
    for batch in data.split(1):
        running.update(batch)
    np.testing.assert_allclose(running.var, data.double().var(0, correction=0), rtol=1e-10)


def test_empty_batches_change_nothing():
    running = RunningStatistics(2)
    running.update(torch.zeros(0, 2))
    assert (running.count, running.mean.tolist(), running.var.tolist()) == (0, [0, 0], [0, 0])
    running.update(torch.tensor([[1.0, 2.0], [3.0, 2.0]]))
    running.update(torch.zeros(0, 2))
    assert (running.count, running.mean.tolist(), running.var.tolist()) == (2, [2, 2], [1, 0])


def test_an_update_does_not_change_the_data_or_record_gradients():
    running, obs = RunningStatistics(2), torch.ones(3, 2, requires_grad=True)
    running.update(obs)
    assert not running.mean.requires_grad
    assert not running.var.requires_grad
    assert (obs == 1).all()


@pytest.mark.parametrize("shape", [(2,), (5, 3), (1, 5, 2), ()])
def test_a_batch_of_another_shape_is_an_error_with_both_shapes(shape):
    with pytest.raises(ValueError, match=re.escape(f"obs must be [B, 2]; got {list(shape)}")):
        RunningStatistics(2).update(torch.zeros(shape))
