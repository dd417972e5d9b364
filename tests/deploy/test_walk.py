"""benchmarks/walk.py: what is a success, and what the table says."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def walk(benchmark_script):
    return benchmark_script("walk")


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"stop": None, "report": {"fell": False}}, ""),
        ({"stop": None, "report": {"fell": True}}, "fell"),
        ({"stop": "tilted: 1.02 rad", "report": {"fell": True}}, "tilted"),
        ({"stop": "late loop: 3 in the last tick", "report": {"fell": False}}, "late loop"),
        ({"stop": None, "report": None}, "no report"),
    ],
)
def test_a_success_neither_falls_nor_ends_early(walk, said, problem):
    assert walk.problem(said) == problem


def test_the_table_has_successes_speed_deadlines_and_times_of_steps(walk, monkeypatch):
    taken = {"a": np.full(99, 0.4), "b": np.full(1, 0.9), "c": np.zeros(0)}
    monkeypatch.setattr(walk, "steps_ms", lambda log: taken[log])
    rollouts = [
        walk.Rollout("flat", 0, "", 0.5, 4.0, -1.0, 1, {}, "a", 3),
        walk.Rollout("flat", 1, "", 0.4, 3.0, 2.0, 2, {}, "b"),
        walk.Rollout("flat", 2, "fell", 0.1, 0.5, 0.0, 0, {}, "c"),
        walk.Rollout("light", 0, "no state", *[float("nan")] * 3, 0, {}, "c"),
    ]
    assert walk.table(rollouts).splitlines()[2:] == [
        "| flat ground | 2 of 3 | 0.45 | 3.50 | 1.50 | 3 | 0.40 | 0.41 | fell 1 | 3 of 600 |",
        "| -2 kg | 0 of 1 | – | – | – | 0 | – | – | no state 1 | 0 of 200 |",
    ]


def test_the_counts_are_5_and_20(walk):
    assert [one.num_rollouts for one in walk.CONDITIONS.values()] == [5, 20, 20, 20, 20]
