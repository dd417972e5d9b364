"""Means and their intervals."""

import numpy as np
import pytest

from body_transformer.imitation.tasks.base import Rollout
from body_transformer.training.evaluation import estimate, summarize


def test_about_95_percent_of_intervals_contain_the_true_mean():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        found = estimate(rng.exponential(2.0, 60).tolist())
        hits += found.low <= 2.0 <= found.high
    assert 0.88 <= hits / 200 <= 0.98


def test_the_same_values_give_the_same_interval():
    assert estimate([0.0, 1.0, 1.0]) == estimate([0.0, 1.0, 1.0])


def test_equal_values_have_an_interval_of_width_zero():
    found = estimate([0.5] * 9)
    assert (found.mean, found.low, found.high, found.num_episodes) == (0.5, 0.5, 0.5, 9)


def test_an_estimate_of_no_values_is_refused():
    with pytest.raises(ValueError, match="at least one value"):
        estimate([])


def test_every_metric_is_averaged_over_the_rollouts():
    results = [
        Rollout("", 10, 1.0, success=True, success_any=True),
        Rollout("", 20, 3.0, success=False, success_any=True),
    ]
    found = summarize(results, ("success", "success_any", "length"))
    assert [found[name].mean for name in found] == [0.5, 1.0, 15.0]
