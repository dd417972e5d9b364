"""`bot deploy` against the simulated robot, across UDP and in real time."""

import json

import pytest

from body_transformer.cli.deploy import Deploy, robot_settings, setting
from body_transformer.cli.main import main
from body_transformer.deploy.log import SavedLog
from body_transformer.deploy.policy import OnnxPolicy
from body_transformer.deploy.replay import replay


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        ("latency_ms=20", ("latency_ms", 20)),
        ("payload_kg=-1.5", ("payload_kg", -1.5)),
        ("fault=nan", ("fault", "nan")),
        ("start=lying", ("start", "lying")),
        ("position_limit=false", ("position_limit", False)),
    ],
)
def test_an_option_is_a_name_and_a_value(pair, expected):
    name, value = setting(pair)
    assert (name, value) == expected
    assert type(value) is type(expected[1])


@pytest.mark.parametrize("pair", ["latency_ms", "=3", "latency_ms="])
def test_an_option_without_a_value_is_refused(pair):
    with pytest.raises(ValueError, match="an option is NAME=VALUE"):
        setting(pair)


def test_each_robot_has_its_own_options(tmp_path):
    assert robot_settings(Deploy(tmp_path, faults=("noise=1",))) == {"noise": 1}
    with pytest.raises(ValueError, match="--faults are those of the simulated robot"):
        robot_settings(Deploy(tmp_path, robot="a1", faults=("noise=1",)))
    with pytest.raises(ValueError, match="--robot-options are those of the A1"):
        robot_settings(Deploy(tmp_path, robot_options=("power_level=3",)))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--robot", "dog"], "unknown robot 'dog'"),
        (["--faults", "lag=3"], "unknown option of the simulated robot 'lag'"),
        (["--seconds", "0"], "seconds is a number above 0"),
        (["--torque-fraction", "2"], "torque_fraction is at most 1"),
    ],
)
def test_what_cannot_be_done_is_said(folder, args, said, capsys):
    assert main(["deploy", str(folder), *args]) == 1
    assert said in capsys.readouterr().err


def test_a_folder_without_a_policy_is_refused(tmp_path, capsys):
    assert main(["deploy", str(tmp_path)]) == 1
    assert "no exported policy in" in capsys.readouterr().err


@pytest.mark.parametrize("dry", [False, True], ids=["for real", "dry run"])
def test_a_policy_runs_across_the_link_and_its_log_can_be_replayed(folder, tmp_path, capsys, dry):
    args = ["deploy", str(folder), "--seconds", "0.5", "--out", str(tmp_path / "log"), "--json"]
    status = main([*args, *(["--dry-run"] if dry else [])])
    said = json.loads(capsys.readouterr().out)
    assert status == (0 if said["stop"] is None else 1)  # a busy machine may miss too many deadlines
    assert said["ticks"] > 20
    log = SavedLog.load(said["log"])
    assert log.description["experiment"] == "a1-walk"
    commands = said["report"]["commands"]
    assert commands <= 5 if dry else commands >= 0.9 * said["ticks"]  # leaving a robot sends it damping, five times
    policy = OnnxPolicy(folder)
    assert replay(said["log"], policy.contract, policy).identical


def test_a_robot_that_sends_nonsense_ends_the_run_with_the_reason(folder, tmp_path, capsys):
    faults = ["--faults", "fault=nan", "fault_at_s=0.5"]
    assert main(["deploy", str(folder), "--seconds", "5", "--out", str(tmp_path), *faults]) == 1
    printed = capsys.readouterr()
    assert "the run ended early, in damping" in printed.err
    assert f"wrote {tmp_path}" in printed.out
    assert SavedLog.load(tmp_path).description["interventions"]["state not finite"] >= 3
