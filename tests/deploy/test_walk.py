"""The scripts benchmarks/walk.py, filter_figure.py and step_times.py: success, tables and figure."""

import numpy as np
import pytest
from PIL import Image

from body_transformer.deploy.contract import Contract
from body_transformer.deploy.runtime_config import Phase
from body_transformer.report.deployment import read_deployments

from ..report.deployment_folders import deploy
from .virtual_robot import virtual_run


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
        walk.Rollout("flat", 0, "", 0.5, 4.0, -1.0, 1, {}, "a", 3, -20.0, 0.1, 10.0),
        walk.Rollout("flat", 1, "", 0.4, 3.0, 2.0, 2, {}, "b", 0, 30.0, 0.3, 10.0),
        walk.Rollout("flat", 2, "fell", 0.1, 0.5, 0.0, 0, {}, "c"),
        walk.Rollout("light", 0, "no state", *[float("nan")] * 3, 0, {}, "c"),
    ]
    assert walk.table(rollouts).splitlines()[2:] == [
        "| flat ground | 2 of 3 | 0.45 | 3.50 | 1.50 | 25 | 20 % | 3 | 0.40 | 0.41 | fell 1 | 3 of 600 |",
        "| -2 kg | 0 of 1 | – | – | – | – | – | 0 | – | – | no state 1 | 0 of 200 |",
    ]


def test_each_condition_has_5_or_20_rollouts(walk):
    assert [one.num_rollouts for one in walk.CONDITIONS.values()] == [5, 5] + [20] * 11


def straight(walk, **changes):
    facts = {"speed_mps": 0.5, "ahead_m": 4.9, "sideways_m": -0.2, "missed": 0, "interventions": {}, "log": ""}
    return walk.Rollout(
        **{"condition": "flat", "seed": 0, "problem": "", "turned_deg": 4.0, "asymmetry": 0.1, "seconds": 10.0}
        | facts
        | changes
    )


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({}, []),
        ({"ahead_m": 4.4}, ["4.40 m ahead"]),
        ({"sideways_m": -0.4}, ["0.40 m aside"]),
        ({"turned_deg": -11.0}, ["turned by 11 degrees"]),
        ({"asymmetry": 0.2}, ["thighs differ by 20 %"]),
        ({"problem": "fell"}, ["1 of 1 ended early"]),
        ({"condition": "left", "turned_deg": 400.0}, []),
        ({"condition": "left", "turned_deg": 380.0}, ["0.66 rad/s"]),
        ({"condition": "right", "turned_deg": -458.0}, []),
        ({"condition": "sideways", "sideways_m": 2.5}, ["0.25 m/s to the left"]),
        ({"condition": "sideways", "sideways_m": 2.7}, []),
    ],
)
def test_a_condition_passes_or_names_the_criteria_that_it_misses(walk, changes, missed):
    one = straight(walk, **changes)
    assert walk.failures(one.condition, [one]) == missed
    assert walk.verdicts([one]).endswith(f": {'; '.join(missed) or 'pass'}\n")


def test_turn_and_symmetry_are_read_from_the_log(walk, tmp_path):
    runtime, _ = virtual_run(seconds=3.0)
    runtime.run()
    turned, uneven = walk.gait(str(runtime.save_log(tmp_path)))
    assert turned == pytest.approx(0.0, abs=5.0)
    assert np.isfinite(uneven)


def test_a_gain_is_set_in_a_copy_of_the_policy(walk, tmp_path, folder):
    changed = Contract.load(walk.with_gain(folder, 50.0, tmp_path))
    assert changed.control.kp == (50.0,) * 12
    assert Contract.load(folder).control.kp == (100.0,) * 12


def test_commands_for_which_a_policy_was_not_trained_are_left_out(walk, folder):
    assert walk.can_follow(folder, "flat")
    assert not walk.can_follow(folder, "left")


def test_step_times_have_a_row_per_stretch_of_time(benchmark_script, tmp_path, capsys):
    runtime, _ = virtual_run(seconds=3.0)
    runtime.run()
    rows = runtime.log.rows()
    walking = np.flatnonzero(rows["phase"] == Phase.POLICY)
    rows["work_ms"][walking], rows["policy_ms"][walking] = 0.5, 0.1
    rows["work_ms"][walking[120]], rows["missed"][walking[120]] = 7.0, 2
    rows["policy_ms"][walking[130]], rows["work_ms"][walking[130]] = np.nan, 99.0  # did not call the policy
    benchmark_script("step_times").main([str(runtime.save_log(tmp_path)), "--every", "2"])
    said = capsys.readouterr().out.splitlines()[2:]
    assert said == ["| 0 | 0.50 | 0.50 | 0.50 | 0 |", "| 2 | 0.50 | 3.88 | 7.00 | 2 |"]  # 48 steps of 0.5 and one of 7


class Trembling:
    """A policy whose actions change their sign in every step."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        self.calls += 1
        return np.full(12, 0.02 * (-1) ** self.calls, np.float32)


def test_the_figure_of_the_filter_shows_that_commands_are_smoother_with_it(benchmark_script, tmp_path, capsys):
    script = benchmark_script("filter_figure")
    for name, without in (("with", False), ("without", True)):
        for k, speed in enumerate((0.4, 0.5)):
            said = {"report": {"mean_speed_mps": speed}}
            deploy(tmp_path / name / str(k), without, said, seconds=6.0, policy=Trembling())
    sets = [read_deployments(sorted((tmp_path / name).iterdir())) for name in ("with", "without")]
    smooth, rough = (script.roughness(one, commanded=True) for one in sets)
    assert max(smooth) < 0.5 * min(rough)
    out = tmp_path / "figure.png"
    script.main([str(tmp_path / "with"), str(tmp_path / "without"), "--out", str(out)])
    said = capsys.readouterr().out.splitlines()
    assert [line.split(", roughness")[0] for line in said] == [
        "with the filter: 2 rollouts, 0.450 m/s",
        "without: 2 rollouts, 0.450 m/s",
    ]
    with Image.open(out) as picture:
        assert picture.size[0] > 1000
