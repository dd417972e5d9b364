"""`bot deploy` against the simulated robot, across UDP and in real time."""

import json
import threading
import time
from hashlib import sha256

import numpy as np
import pytest

from body_transformer.cli.deploy import host_and_port, make_robot, parse, robot_options, run_settings, setting
from body_transformer.cli.main import main
from body_transformer.deploy.contract import Contract
from body_transformer.deploy.policy import OnnxPolicy
from body_transformer.deploy.robot import Robot
from body_transformer.deploy.robots import open_robot
from body_transformer.deploy.robots.sim import SimRobot
from body_transformer.deploy.runtime import Runtime
from body_transformer.deploy.runtime_config import Phase, RuntimeConfig
from body_transformer.deploy.safety import Reason, SafetyConfig
from body_transformer.deploy.saved_log import SavedLog

from . import fake_robot_interface as fake
from .real_time import in_real_time

pytestmark = pytest.mark.alone


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


@pytest.mark.parametrize(
    "address",
    ["47001", "localhost", ":47001", "localhost:", "localhost:-1", "localhost:0", "localhost:65536", "127.0.0.1:99999"],
)
def test_an_invalid_address_is_refused(address):
    with pytest.raises(ValueError, match="an address must be HOST:PORT"):
        host_and_port(address)
    assert host_and_port("127.0.0.1:47001") == ("127.0.0.1", 47001)


@pytest.mark.parametrize("pair", ["latency_ms", "=3", "latency_ms="])
def test_an_option_without_a_value_is_refused(pair):
    with pytest.raises(ValueError, match="an option must be NAME=VALUE"):
        setting(pair)


def settings(*args: str) -> dict[str, object]:
    return robot_options(parse(["policy", *args]))


def test_an_option_that_is_given_twice_is_refused():
    with pytest.raises(ValueError, match="noise is given more than once"):
        settings("--faults", "noise=1", "seed=3", "noise=2")
    twice = ("--robot-options", "power_level=3", "--robot-options", "position_limit=true")
    assert settings("--robot", "a1", *twice) == {"power_level": 3, "position_limit": True}


def test_each_robot_has_its_own_options():
    assert settings("--faults", "noise=1") == {"noise": 1}
    with pytest.raises(ValueError, match="--faults are for the simulated robot"):
        settings("--robot", "a1", "--faults", "noise=1")
    with pytest.raises(ValueError, match="--robot-options are for other robots"):
        settings("--robot-options", "power_level=3")


def test_the_flags_set_the_run_and_its_safety():
    assert run_settings(parse(["policy"]), Robot) == (RuntimeConfig(), SafetyConfig())
    flags = (
        "--seconds 3 --loop-hz 100 --torque-fraction .5 --stale-ms 40 --max-tilt-rad 2 --command 0.3 -0.1 0 --dry-run "
        "--no-filter"
    )
    config = RuntimeConfig(seconds=3.0, loop_hz=100.0, command=(0.3, -0.1, 0.0), filter=False, dry_run=True)
    safety = SafetyConfig(torque_fraction=0.5, stale_ms=40.0, max_tilt_rad=2.0)
    assert run_settings(parse(["policy", *flags.split()]), Robot) == (config, safety)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--robot", "dog"], "unknown robot 'dog'"),
        (["--address", "10.0.0.1:47001"], "'10.0.0.1' is not on this host"),
        (
            ["--address", "127.0.0.1:47001"],
            "the link to a robot needs its key: give --key-file FILE or set BOT_LINK_KEY",
        ),
        (["--key-file", "key"], "--key-file is for a robot at an --address"),
        (["--address", "127.0.0.1:47001", "--key-file", "no/file"], "cannot read the key in 'no/file'"),
        (["--address", "10.0.0.1"], "an address must be HOST:PORT"),
        (["--robot", "a1", "--address", "127.0.0.1:47001"], "--address is for a simulated robot"),
        (["--address", "127.0.0.1:47001", "--faults", "noise=1"], "the one at an address has its own"),
        (["--faults", "lag=3"], "unknown option of the simulated robot 'lag'"),
        (["--faults", "remote=true", "--address", "10.0.0.1:47001"], "unknown option of the simulated robot 'remote'"),
        (["--faults", "expected=a"], "unknown option of the simulated robot 'expected'"),
        (["--faults", "address=a"], "unknown option of the simulated robot 'address'"),
        (["--faults", "latency_ms=some"], "latency_ms must be a finite number; got 'some'"),
        (["--faults", "start_joints=0.1"], "start_joints must be a list; got 0.1"),
        (["--robot", "a1", "--robot-options", "expected=a"], "unknown option of the A1 'expected'"),
        (["--robot", "a1", "--robot-options", "damping_kd=some"], "damping_kd must be a finite number; got 'some'"),
        (["--robot", "a1", "--robot-options", "listen_only=true"], "--dry-run"),
        (["--seconds", "0"], "seconds must be above 0"),
        (["--torque-fraction", "2"], "torque_fraction must be at most 1"),
    ],
)
def test_impossible_options_are_refused(folder, args, said, capsys):
    assert main(["deploy", str(folder), *args]) == 1
    assert said in capsys.readouterr().err


def test_with_a_key_a_robot_may_be_on_another_host(folder, tmp_path):
    assert main(["deploy", "--new-key", str(tmp_path / "key")]) == 0
    options = parse([str(folder), "--address", "203.0.113.7:47001", "--key-file", str(tmp_path / "key")])
    robot = make_robot(options, SimRobot, Contract.load(folder))
    assert robot._key.hex() == (tmp_path / "key").read_text().strip()


def test_a_new_key_is_written_once(tmp_path, capsys):
    file = tmp_path / "key"
    assert main(["deploy", "--new-key", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"key_file": str(file)}
    assert main(["deploy", "--new-key", str(file)]) == 1
    said = capsys.readouterr()
    assert (said.out, "exists: name a new file" in said.err) == ("", True)
    assert file.read_text().strip() not in said.err


def test_a_folder_without_a_policy_is_refused(tmp_path, capsys):
    assert main(["deploy", str(tmp_path)]) == 1
    assert "no policy in" in capsys.readouterr().err


@pytest.mark.parametrize("dry", [False, True], ids=["for real", "dry run"])
@in_real_time
def test_a_policy_runs_across_the_link_and_its_log_can_be_replayed(folder, tmp_path, capsys, dry):
    args = ["deploy", str(folder), "--seconds", "0.5", "--out", str(tmp_path / "log"), "--json"]
    status = main([*args, *(["--dry-run"] if dry else [])])
    said = json.loads(capsys.readouterr().out)
    assert status == (0 if said["stop"] is None else 1)  # a busy machine may miss too many deadlines
    assert said["ticks"] > 20
    log = SavedLog.load(said["log"])
    assert log.description.experiment == "a1-walk"
    assert log.description.loop_hz >= 100  # so that two lost commands are shorter than the robot's time-out
    commands = said["report"]["commands"]
    assert commands == 0 if dry else commands >= 0.9 * said["ticks"]
    assert main(["deploy", str(folder), "--replay", said["log"]]) == 0
    assert f"all {said['ticks']} commands are those of" in capsys.readouterr().out


def test_a_log_with_other_commands_is_an_error(folder, tmp_path, capsys, monkeypatch):
    args = ["deploy", str(folder), "--seconds", "0.2", "--dry-run", "--out", str(tmp_path), "--json"]
    main(args)
    capsys.readouterr()
    with np.load(tmp_path / "log.npz", allow_pickle=False) as arrays:
        rows = dict(arrays)
    rows["command"][7, 0, 3] += 1e-9
    np.savez_compressed(tmp_path / "log.npz", **rows)
    said = json.loads((tmp_path / "log.json").read_text())
    digest = sha256((tmp_path / "log.npz").read_bytes()).hexdigest()
    (tmp_path / "log.json").write_text(json.dumps(said | {"arrays_sha256": digest}))
    assert main(["deploy", str(folder), "--replay", str(tmp_path), "--json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["different_ticks"] == [rows["tick"][7]]
    assert f"1 of {len(rows['tick'])} commands differ from those of" in printed.err

    def closed_pipe(content):
        raise BrokenPipeError

    monkeypatch.setattr("body_transformer.cli.deploy.print_json", closed_pipe)
    assert main(["deploy", str(folder), "--replay", str(tmp_path), "--json"]) == 1


# -- the A1, with a stand-in for Unitree's module ----------------------------------------------------------------------


@in_real_time
def test_on_the_a1_commands_leave_at_200_hz(folder, servos, tmp_path, capsys):
    status = main(["deploy", str(folder), "--robot", "a1", "--seconds", "0.3", "--out", str(tmp_path), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert status == (0 if said["stop"] is None else 1)  # a busy machine may miss too many deadlines
    assert SavedLog.load(tmp_path).description.loop_hz == 200
    assert len(servos.commands) >= said["ticks"] > 100
    assert max(motor.Kp for sent in servos.commands for motor in sent.motorCmd[:12]) == 100
    assert {motor.Kp for motor in servos.commands[-1].motorCmd[:12]} == {0.0}
    assert {motor.Kd for motor in servos.commands[-1].motorCmd[:12]} == {5.0}


@in_real_time
def test_a_protection_of_the_a1_that_raises_ends_the_run_in_damping(folder, servos, tmp_path, capsys, monkeypatch):
    good = []

    def broken(self, cmd, state, factor):
        if len(good) == 2:
            raise RuntimeError("no such motor")
        good.append(len(servos.commands))
        return 0

    monkeypatch.setattr(fake.Safety, "PowerProtect", broken)
    main(["deploy", str(folder), "--robot", "a1", "--seconds", "0.3", "--out", str(tmp_path), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said["stop"] == "robot tripped: PowerProtect failed: no such motor"
    gains = [{motor.Kp for motor in cmd.motorCmd[:12]} for cmd in servos.commands]
    assert [k for k, gain in enumerate(gains) if gain != {0.0}] == good
    assert len(gains) > good[-1] + 100
    assert {motor.Kd for motor in servos.commands[-1].motorCmd[:12]} == {5.0}


def test_the_log_is_written_when_the_robot_has_been_left(folder, servos, tmp_path, monkeypatch):
    sent, save = [], Runtime.save_log
    monkeypatch.setattr(Runtime, "save_log", lambda *args: (sent.append(len(servos.commands)), save(*args)))
    main(["deploy", str(folder), "--robot", "a1", "--seconds", "0.1", "--out", str(tmp_path)])
    assert sent == [len(servos.commands)]


@in_real_time
def test_a_dry_run_asks_the_a1_for_its_state_and_gives_it_no_torque(folder, servos, tmp_path, capsys):
    flags = ["--robot", "a1", "--seconds", "0.3", "--dry-run", "--json", "--out"]
    main(["deploy", str(folder), *flags, str(tmp_path)])
    said = json.loads(capsys.readouterr().out)
    assert said["ticks"] > 100
    assert "state lost" not in said["interventions"]
    for name in ("Kp", "Kd", "tau"):
        assert {getattr(motor, name) for cmd in servos.commands for motor in cmd.motorCmd} == {0.0}


# -- faults ------------------------------------------------------------------------------------------------------------


@in_real_time
def test_a_robot_that_is_stopped_before_it_has_fallen_counts_as_fallen_when_it_falls(folder, tmp_path, capsys):
    args = ["deploy", str(folder), "--seconds", "5", "--out", str(tmp_path), "--json"]
    assert main([*args, "--faults", "fault=silent", "fault_at_s=3.2"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["stop"].startswith("state lost")
    assert said["report"]["duration_s"] > said["policy_seconds"] + 0.5  # its report covers the damping, too
    assert said["report"]["fell"]


@in_real_time
def test_a_robot_that_sends_nan_ends_the_run_with_the_reason(folder, tmp_path, capsys):
    faults = ["--faults", "fault=nan", "fault_at_s=0.5"]
    assert main(["deploy", str(folder), "--seconds", "5", "--out", str(tmp_path), *faults]) == 1
    printed = capsys.readouterr()
    assert "the run ended early, in damping" in printed.err
    assert f"wrote {tmp_path}" in printed.out
    assert SavedLog.load(tmp_path).description.interventions["state not finite"] >= 3


@in_real_time
def test_when_the_robot_is_killed_the_run_ends_as_soon_as_its_last_state_is_too_old(folder):
    policy, killed = OnnxPolicy(folder), []
    with open_robot("sim", expected=policy.contract.control.joints) as robot:

        def kill():
            robot.process.kill()  # SIGKILL
            killed.append(time.monotonic())

        robot.begin_rollout = threading.Timer(0.3, kill).start
        config = RuntimeConfig(seconds=5.0, ramp_s=0.5, hold_s=0.2, damping_s=0.1)
        safety = SafetyConfig(clock_drift=0.2, stale_ms=100.0)
        runtime = Runtime(policy.contract, policy, robot, config, safety)
        result = runtime.run()
    rows = runtime.log.rows()
    damped_s = rows["now_s"][rows["phase"] >= Phase.DAMPING][0]
    assert result.stop.reason is Reason.STATE_LOST
    assert 0.05 < damped_s - killed[0] < 0.1 + 3 * 0.02
    assert not rows["command"][rows["phase"] >= Phase.DAMPING][:, 2].any()  # kp
