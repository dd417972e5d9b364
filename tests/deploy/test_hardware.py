"""The robot's own limits: no contract and no command is beyond them."""

import sys
from dataclasses import replace

import mujoco
import numpy as np
import pytest

from body_transformer import robots
from body_transformer.cli.main import main
from body_transformer.deploy.contract import Contract
from body_transformer.deploy.export import Trained, export
from body_transformer.deploy.hardware import A1, CommandBounds, hardware_of
from body_transformer.deploy.robot import Command
from body_transformer.deploy.robots import a1
from body_transformer.experiment import load_experiment

from . import fake_robot_interface as fake
from .conftest import make_policy
from .test_contract import change
from .virtual_robot import JOINTS, a1_contract, save_contract

ZEROS, ONES = np.zeros(12), np.ones(12)


def test_the_a1s_limits_are_those_of_its_model_and_of_unitrees_sdk():
    model = mujoco.MjModel.from_xml_path(str(robots.path("a1")))
    speeds = load_experiment("a1-walk").deploy.velocity_limits
    for k, name in enumerate(a1.JOINTS):
        own, (low, high), part = A1.joints[name], model.joint(name).range, name.split("_")[1]
        for given_low, given_high in ((low, high), fake.RANGES[k]):
            assert own.low <= given_low < own.low + 0.005
            assert own.high - 0.005 < given_high <= own.high
        assert own.torque == model.actuator(name).forcerange[1]
        assert own.velocity == speeds[f"*_{part}_joint"]


def test_a_robot_is_known_by_its_joints_in_any_order():
    assert hardware_of(JOINTS) is hardware_of(a1.JOINTS) is A1
    assert hardware_of((*JOINTS[:-1], "tail_joint")) is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"kp": (5000.0,) * 12},
            "control.kp of 'FL_hip_joint' is 5000; the A1 allows 180 Nm/rad at most",
        ),
        (
            {"kd": (1.0,) * 11 + (9.0,)},
            "control.kd of 'RR_calf_joint' is 9; the A1 allows 8 Nm s/rad at most",
        ),
        (
            {"torque_limits": (1e9,) * 12},
            "control.torque_limits of 'FL_hip_joint' is 1e[+]09; the A1 allows 33.5 Nm",
        ),
        (
            {"velocity_limits": (60.0,) * 12},
            "control.velocity_limits of 'FL_hip_joint' is 60; the A1 allows 52.4 rad",
        ),
        (
            {"velocity_limits": (float("inf"),) * 12},
            "control.velocity_limits of 'FL_hip_joint' is inf; the A1 allows",
        ),
        (
            {"position_limits": ((-100.0, 100.0),) * 12},
            r"is \(-100, 100\); the A1 allows -0.803 to 0.803 rad",
        ),
    ],
)
def test_a_contract_that_asks_for_more_than_the_robot_has_is_refused(tmp_path, given, message):
    """Even one whose hash says that it was exported so."""
    contract = a1_contract(**given)
    with pytest.raises(ValueError, match=message):
        contract.check_edits()
    save_contract(contract, tmp_path)
    with pytest.raises(ValueError, match=message):
        Contract.read(tmp_path)


def test_what_the_hardware_does_not_allow_is_not_exported(tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    known = load_experiment("a1-walk")
    wild = replace(known, deploy=replace(known.deploy, kp=1000.0))
    monkeypatch.setattr("body_transformer.deploy.export.load_experiment", lambda name: wild)
    with pytest.raises(ValueError, match=r"control\.kp of 'FL_hip_joint' is 1000; the A1 allows 180"):
        export(Trained(make_policy(), "a1-walk", {}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_edited_contract_sends_nothing_to_the_a1(copy, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fake, "machine", fake.Machine())
    monkeypatch.setitem(sys.modules, "robot_interface", fake)
    change(copy, "control.kp", [5000.0] * 12)
    assert main(["deploy", str(copy), "--robot", "a1", "--seconds", "0.1", "--out", str(tmp_path / "log")]) == 1
    assert "control.kp of 'FL_hip_joint' is 5000; the A1 allows 180 Nm/rad at most" in capsys.readouterr().err
    assert fake.machine.commands == []


# -- single commands ---------------------------------------------------------------------------------------------------


def test_a_command_within_the_limits_is_the_same_object():
    bounds = CommandBounds(A1, a1.JOINTS)
    home = np.array([angle for _ in range(4) for angle in (0.1, 0.8, -1.5)])
    for command in (Command(home, ZEROS, 100 * ONES, ONES, 33.5 * ONES), Command.damping(12)):
        assert bounds(command) is command


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_every_part_of_a_command_is_cut_in_the_robots_own_order(sign):
    order = JOINTS[::-1]
    most = 1e6 * sign * ONES
    cut = CommandBounds(A1, order)(Command(most, most, np.abs(most), np.abs(most), most))
    own = [A1.joints[name] for name in order]
    np.testing.assert_array_equal(cut.position, [joint.high if sign > 0 else joint.low for joint in own])
    np.testing.assert_array_equal(cut.velocity, [sign * joint.velocity for joint in own])
    np.testing.assert_array_equal(cut.torque, [sign * joint.torque for joint in own])
    np.testing.assert_array_equal(cut.kp, 180.0)
    np.testing.assert_array_equal(cut.kd, 20.0)


def test_a_negative_gain_becomes_none():
    cut = CommandBounds(A1, JOINTS)(Command(ZEROS, ZEROS, -ONES, -ONES, ZEROS))
    assert not cut.kp.any()
    assert not cut.kd.any()


def test_a_target_without_a_gain_stays_as_it_is():
    far = Command(9 * ONES, 99 * ONES, ZEROS, ZEROS, ONES)
    assert CommandBounds(A1, JOINTS)(far) is far
