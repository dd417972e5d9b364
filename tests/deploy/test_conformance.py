"""`bot deploy --check`: the example driver passes, and each fault of a driver is found by the check about it."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from body_transformer.cli.main import main
from body_transformer.deploy import conformance as module
from body_transformer.deploy.conformance import CHECKS, conformance
from body_transformer.deploy.robot import Command, Robot, State
from body_transformer.deploy.robots import driver

from .virtual_robot import JOINTS

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(module, "SECONDS", 0.15)


def example() -> type:
    return driver("driver:Example")


def problems(kind: type, **options) -> dict[str, str]:
    """Return the failed checks with their problems."""
    return {claim: problem for claim, problem in conformance(lambda: kind.create(options)) if problem}


def test_the_example_passes_and_has_at_most_60_lines(capsys):
    assert len((EXAMPLES / "driver.py").read_text().splitlines()) <= 60
    assert main(["deploy", "--check", "driver:Example", "--robot-options", "speed=3"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == len(CHECKS) + 2
    assert all(line.startswith("ok ") for line in said)


def test_the_example_takes_the_joints_of_any_policy():
    assert example().create({}, ("turn", "FL_calf_joint")).position.tolist() == [0.0, -1.6]


def test_a_driver_may_lie_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    Path("my_driver_here.py").write_text("from body_transformer.deploy.robot import Robot\nclass Mine(Robot): pass\n")
    assert driver("my_driver_here:Mine").__name__ == "Mine"


def test_the_simulated_robot_passes():
    assert problems(driver("sim")) == {}


def test_with_a_policy_the_joints_must_be_its_own(folder, capsys, monkeypatch):
    assert main(["deploy", str(folder), "--check", "driver:Example", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {"claim": "the joints are those of the policy", "problem": ""} in said["checks"]
    monkeypatch.setattr(example(), "create", classmethod(lambda cls, options, expected=(): cls(("a_hip",), 1.0)))
    assert main(["deploy", str(folder), "--check", "driver:Example"]) == 1
    output = capsys.readouterr()
    assert "FAILED  the joints are those of the policy: these differ: FL_calf_joint" in output.out
    assert "driver:Example failed" in output.err


def test_without_a_policy_and_without_a_check_the_command_says_what_is_missing(capsys):
    with pytest.raises(SystemExit):
        main(["deploy"])
    assert "the following arguments are required: DIR" in capsys.readouterr().err


def state_with(**changes):
    """Return a change of the states that the example returns."""
    return lambda state: replace(state, **{name: value(state) for name, value in changes.items()})


STATE_FAULTS = {
    "states have the documented types and shapes": state_with(joint_pos=lambda state: state.joint_pos[:-1]),
    "measurements are finite, and quaternions have length 1": state_with(quaternion=lambda state: np.zeros(4)),
    "every state is returned once, in the order of sequence": state_with(sequence=lambda state: 7),
    "stamp_s grows": state_with(stamp_s=lambda state: 3.0),
    "received_s is time.monotonic() at the arrival": state_with(received_s=lambda state: state.received_s + 5.0),
    "states arrive": lambda state: None,
}


@pytest.mark.parametrize("claim", STATE_FAULTS)
def test_a_fault_of_the_states_is_found(claim):
    class Faulty(example()):
        def read(self) -> State | None:
            return STATE_FAULTS[claim](super().read())

    assert problems(Faulty).keys() == {claim}


def test_a_reused_array_is_found():
    class Faulty(example()):
        def read(self) -> State:
            state = super().read()
            self.shared = getattr(self, "shared", np.zeros(12))
            self.shared += 1.0
            return replace(state, joint_vel=self.shared)

    assert problems(Faulty).keys() == {"a returned state does not change"}


def slow(*_):
    import time

    time.sleep(0.01)


def driven(self, command: Command) -> Command:
    command.check(12)
    return replace(command, kp=np.ones(12))


MEMBER_FAULTS = {
    "joints are different names, in a tuple": {"joints": property(lambda self: ["a"] * 12, lambda self, names: None)},
    "the other members have their types and fit together": {"tripped": None, "loop_hz": 900.0},
    "send returns the command as sent": {"send": driven},
    "send refuses an invalid command with ValueError": {"send": lambda self, command: command},
    "create refuses an unknown option with ValueError": {"create": classmethod(lambda cls, *_: cls(JOINTS, 1.0))},
    "summary returns None or JSON": {"summary": lambda self: {"speed": np.zeros(2)}},
    "send does not block": {"send": lambda self, command: command.check(12) or slow() or command},
    "read does not block": {"read": lambda self: slow() or example().read(self)},
    "a session works": {"__enter__": lambda self: None},
    "an error in the with statement leaves it, and the robot can be entered again": {"__exit__": lambda *_: True},
}


@pytest.mark.parametrize("claim", MEMBER_FAULTS)
def test_a_fault_of_a_member_is_found(claim):
    assert claim in problems(type("Faulty", (example(),), MEMBER_FAULTS[claim]))


def test_only_damping_is_sent_to_the_robot_and_invalid_commands_have_no_gain_or_torque():
    sent = []

    class Watched(example()):
        def send(self, command: Command) -> Command:
            sent.append(command)
            return super().send(command)

    assert problems(Watched) == {}
    assert all(not command.kp.any() and np.nan_to_num(command.torque).max() == 0 for command in sent)
    assert math.isclose(max(command.kd.max() for command in sent), 5.0)
    assert issubclass(Watched, Robot)
