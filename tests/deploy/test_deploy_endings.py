"""The end of `bot deploy`: refusals before anything is sent to the A1, and the fate of result and log."""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from body_transformer.cli.deploy import run_settings
from body_transformer.cli.main import main
from body_transformer.deploy.robots.a1 import A1Robot
from body_transformer.deploy.runtime import Runtime
from body_transformer.deploy.saved_log import SavedLog

from .real_time import in_real_time

pytestmark = [pytest.mark.alone, pytest.mark.usefixtures("servos", "quick")]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the run to half a second, and allow for a busy computer."""

    def short(options, kind):
        config, safety = run_settings(options, kind)
        config = replace(config, ramp_s=0.2, ramp_speed=10.0, hold_s=0.05, damping_s=0.2, warm_up=3)
        return config, replace(safety, max_missed=1000)

    monkeypatch.setattr("body_transformer.cli.deploy.run_settings", short)


def deploy(folder: Path, *args: object) -> int:
    flags = {"--robot": "a1", "--seconds": "0.1", "--stale-ms": "2000"}
    flags = {name: value for name, value in flags.items() if name not in args}
    return main(["deploy", str(folder), *map(str, args), *(word for pair in flags.items() for word in pair)])


def stop_at(monkeypatch: pytest.MonkeyPatch, mark: str) -> None:
    """Send SIGINT at `begin_rollout`, when the policy starts, or at `end_rollout`, when the planned damping starts."""
    monkeypatch.setattr(A1Robot, mark, lambda self: os.kill(os.getpid(), signal.SIGINT))


# -- before the run ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--command", "nan", "0", "0"], "a command's entries must be from -5 to 5; got nan"),
        (["--command", "inf", "0", "0"], "a command's entries must be from -5 to 5; got inf"),
        (["--command", "1e9", "0", "0"], "a command's entries must be from -5 to 5; got 1e+09"),
        (["--command", "0.5"], "the command must have 3 entries; got 1"),
        (["--loop-hz", "75"], "the loop's rate must be a multiple of the policy's 50 Hz; got 75"),
        (["--loop-hz", "25"], "the loop's rate must be a multiple of the policy's 50 Hz; got 25"),
        (["--loop-hz", "50"], "this robot takes 100 to 1000 commands per second (loop_hz); got 50"),
        (["--loop-hz", "1e6", "--seconds", "1000"], "loop_hz must be at most 1000; got 1e+06"),
        (["--out", "/proc/x"], "cannot write the log to '/proc/x': No such file or directory"),
        (["--out", __file__], f"cannot write the log to '{__file__}': it is a file, not a folder"),
        (["--out", f"{__file__}/x"], f"cannot write the log to '{__file__}/x': Not a directory"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line_before_anything_is_sent(
    folder, servos, tmp_path, monkeypatch, capsys, args, said
):
    monkeypatch.chdir(tmp_path)
    assert deploy(folder, *args) == 1
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert servos.commands == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["log.json", "log.npz"])
def test_a_log_of_an_earlier_deployment_is_not_overwritten(folder, servos, tmp_path, capsys, name):
    (tmp_path / name).write_text("precious")
    assert deploy(folder, "--out", tmp_path) == 1
    assert "holds the log of an earlier deployment" in capsys.readouterr().err
    assert (tmp_path / name).read_text() == "precious"
    assert servos.commands == []


def test_a_robot_that_cannot_be_connected_leaves_no_folder(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(A1Robot, "__enter__", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        deploy(folder)
    assert list((tmp_path / "deployments").iterdir()) == []


def test_a_signal_while_the_robot_is_being_connected_ends_the_run(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(A1Robot, "__enter__", lambda self: os.kill(os.getpid(), signal.SIGTERM))
    assert deploy(folder, "--out", tmp_path / "log") == 130
    assert "stopped" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_key_while_the_robot_is_being_connected_keeps_the_policy_from_starting(
    folder, servos, terminal, tmp_path, monkeypatch, capsys
):
    enter = A1Robot.__enter__

    def typed(self):
        terminal.write(b" ")
        return enter(self)

    monkeypatch.setattr(A1Robot, "__enter__", typed)
    assert deploy(folder, "--out", tmp_path, "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert said["stop"] == "emergency stop: key"
    assert said["policy_seconds"] == 0
    assert {motor.Kp for command in servos.commands for motor in command.motorCmd} == {0.0}
    terminal.close()


# -- the log -----------------------------------------------------------------------------------------------------------


def broken(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let this number of attempts to write the log fail."""
    save, left = Runtime.save_log, iter(range(times))

    def failing(self, *args):
        if next(left, None) is not None:
            raise OSError("no space left on device")
        return save(self, *args)

    monkeypatch.setattr(Runtime, "save_log", failing)


def test_a_log_that_cannot_be_written_goes_to_a_temporary_folder(folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    broken(monkeypatch, 1)
    assert deploy(folder, "--out", tmp_path / "log", "--json") == 0
    printed = capsys.readouterr()
    said = json.loads(printed.out)
    assert Path(said["log"]).parent == tmp_path / "temporary"
    assert SavedLog.load(said["log"]).description.robot == "a1"
    assert f"could not be written to '{tmp_path / 'log'}': no space left on device" in printed.err
    assert f"the log is in '{said['log']}' instead" in printed.err


@pytest.mark.parametrize("stops", [False, True])
def test_the_result_is_printed_when_the_log_is_lost(folder, tmp_path, monkeypatch, capsys, stops):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    broken(monkeypatch, 2)
    if stops:
        stop_at(monkeypatch, "begin_rollout")
    assert deploy(folder, "--out", tmp_path / "log") == 1
    printed = capsys.readouterr()
    assert "a1-walk on a1" in printed.out
    assert ("stop: emergency stop: SIGINT" in printed.out) == stops
    assert "wrote" not in printed.out
    last = printed.err.splitlines()[-1]
    assert last == (
        "bot deploy: the run ended early, in damping: emergency stop: SIGINT; there is no log"
        if stops
        else "bot deploy: the run went as planned, but its log is lost"
    )
    assert list(tmp_path.iterdir()) == []


def test_the_result_is_printed_when_the_robot_fails(folder, tmp_path, monkeypatch, capsys):
    sent = []

    def failing(self):
        sent.append(None)
        if len(sent) > 60:
            raise OSError("network is unreachable")

    monkeypatch.setattr(A1Robot, "_transmit", failing)
    assert deploy(folder, "--out", tmp_path, "--json") == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["stop"] == "error: OSError: network is unreachable"
    assert SavedLog.load(tmp_path).description.stop.reason == "error"
    assert "network is unreachable" in printed.err


LOST = "bot deploy: the robot's report is lost: "


@pytest.mark.parametrize("json_line", [False, True])
@pytest.mark.parametrize(
    ("summary", "report", "said"),
    [
        (lambda self: {"battery": 0.5}, {"battery": 0.5}, "the robot reports: battery 0.5"),
        (lambda self: {"battery": math.nan}, None, f"{LOST}Out of range float values are not JSON compliant"),
        (lambda self: {"battery": b"half"}, None, f"{LOST}Object of type bytes is not JSON serializable"),
        (lambda self: "half", None, f"{LOST}it must be a mapping; got 'half'"),
        (lambda self: 1 / 0, None, f"{LOST}division by zero"),
    ],
    ids=["own", "NaN", "bytes", "text", "error"],
)
def test_whatever_a_driver_reports_result_and_log_are_written(
    folder, tmp_path, monkeypatch, capsys, summary, report, said, json_line
):
    monkeypatch.setattr(A1Robot, "summary", summary)
    assert deploy(folder, "--out", tmp_path, *["--json"] * json_line) == 0
    printed = capsys.readouterr()
    assert SavedLog.load(tmp_path).description.report == report
    if json_line:
        assert json.loads(printed.out)["report"] == report
    else:
        assert said in printed.out + printed.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_second_signal_while_the_log_is_written_changes_nothing(folder, tmp_path, monkeypatch, capsys, number):
    save, before = Runtime.save_log, signal.getsignal(number)

    def interrupted(*args):
        os.kill(os.getpid(), number)
        try:
            return save(*args)
        finally:
            os.kill(os.getpid(), number)

    stop_at(monkeypatch, "begin_rollout")
    monkeypatch.setattr(Runtime, "save_log", interrupted)
    monkeypatch.setattr(A1Robot, "__exit__", lambda self, *exc: os.kill(os.getpid(), number))
    assert deploy(folder, "--out", tmp_path, "--json") == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["stop"] == "emergency stop: SIGINT"
    assert SavedLog.load(tmp_path).description.stop.detail == "SIGINT"
    assert signal.getsignal(number) is before


@in_real_time
def test_a_stop_in_the_planned_damping_is_no_early_end(folder, tmp_path, monkeypatch, capsys):
    stop_at(monkeypatch, "end_rollout")
    assert deploy(folder, "--out", tmp_path, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["stop"] is None
    assert said["interventions"]["emergency stop"] == 1


# -- closed outputs ----------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
from tests.deploy import fake_robot_interface as fake
from body_transformer.cli.main import main

sys.modules["robot_interface"] = fake  # all of its joints are at 0, which no calf can reach
sys.exit(main(["deploy", sys.argv[1], "--robot", "a1", "--out", sys.argv[2], *sys.argv[3:]]))
"""


@pytest.mark.parametrize("where", ["| true", "2>&1 | true", "> /dev/full", "2>&-"])
def test_the_exit_status_does_not_depend_on_closed_or_full_outputs(folder, tmp_path, where):
    shell = f'set -o pipefail; "$@" {where}'
    command = [sys.executable, "-c", PROGRAM, str(folder), str(tmp_path)]
    done = subprocess.run(
        ["bash", "-c", shell, "bash", *command],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    if "2>" not in where:
        assert "the run ended early, in damping: bad states" in done.stderr
    assert SavedLog.load(tmp_path).description.stop.reason == "bad states"
