"""Every command is within the limits of the contract and of the hardware."""

import sys
from dataclasses import replace

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from body_transformer import robots
from body_transformer.cli.main import main
from body_transformer.deploy.contract import Contract
from body_transformer.deploy.export import Trained, export
from body_transformer.deploy.limits import A1, CommandBounds, Limiter, hardware_of
from body_transformer.deploy.robot import DAMPING_KD, Command
from body_transformer.deploy.robots import a1
from body_transformer.deploy.safety import Interventions, Reason, SafetyConfig
from body_transformer.experiment import load_experiment

from . import fake_robot_interface as fake
from .conftest import make_policy
from .test_contract import change
from .virtual_robot import DEFAULT_POSE, JOINTS, a1_contract, save_contract

CONTROL = a1_contract().control
LOW, HIGH = np.array(CONTROL.position_limits).T
TORQUE, VELOCITY, PERIOD = 33.5, 21.0, 0.02
POSE = np.array(DEFAULT_POSE)
STILL = np.zeros(12)


def limiter(config=None, control=CONTROL) -> Limiter:
    made = Limiter(control, config or SafetyConfig(), PERIOD, Interventions())
    made.start(POSE)
    return made


def reasons(made: Limiter) -> set[Reason]:
    return {reason for reason in Reason if made._interventions.tick_bits >> reason & 1}


def pd_torque(made: Limiter, pos: np.ndarray, vel: np.ndarray) -> np.ndarray:
    return made.torque + made.kp * (made.position - pos) - made.kd * vel


def moved(joint: int, by: float) -> np.ndarray:
    pose = POSE.copy()
    pose[joint] += by
    return pose


def test_a_target_within_all_limits_is_not_changed():
    made = limiter()
    made.hold_position(moved(1, 0.1), POSE, STILL)
    np.testing.assert_array_equal(made.position, moved(1, 0.1))
    assert (made.kp == 100).all()
    assert (made.kd == 1).all()
    assert reasons(made) == set()


def test_a_target_outside_the_range_stops_at_its_edge():
    made = limiter()
    near = moved(0, 0.65)  # 0.75 of 0.8
    made.start(near)
    made.hold_position(moved(0, 0.9), near, STILL)
    assert made.position[0] == 0.8
    assert reasons(made) == {Reason.POSITION_LIMIT}


def test_a_target_is_moved_until_the_torque_at_the_measured_state_is_allowed():
    made = limiter(SafetyConfig(step_rad=10.0))
    vel = np.full(12, 2.0)
    made.hold_position(moved(1, 0.4), POSE, vel)
    # 33.5 Nm = 100 (p - q) - 1 · 2
    assert made.position[1] - POSE[1] == pytest.approx(0.355)
    assert pd_torque(made, POSE, vel)[1] == pytest.approx(TORQUE)
    assert reasons(made) == {Reason.TORQUE_LIMIT}


def test_a_target_moves_no_further_in_one_tick_than_the_velocity_limit_or_the_step_limit_allows():
    soft = replace(CONTROL, kp=(10.0,) * 12)
    for config, step in [(SafetyConfig(), VELOCITY * PERIOD), (SafetyConfig(step_rad=0.05), 0.05)]:
        made = limiter(config, soft)
        made.hold_position(moved(1, 1.0), POSE, STILL)
        assert made.position[1] - POSE[1] == pytest.approx(step)
        made.hold_position(moved(1, 1.0), POSE, STILL)
        assert made.position[1] - POSE[1] == pytest.approx(min(2 * step, 1.0))
        assert reasons(made) == {Reason.STEP_LIMIT}


def test_a_joint_that_is_too_fast_is_braked_and_not_driven():
    made = limiter()
    vel = STILL.copy()
    vel[4] = 25.0
    made.hold_position(moved(4, 0.3), POSE, vel)
    assert pd_torque(made, POSE, vel)[4] <= 0
    assert Reason.VELOCITY_LIMIT in reasons(made)
    made.hold_position(moved(4, -0.3), POSE, vel)
    assert pd_torque(made, POSE, vel)[4] < 0


def test_where_no_target_satisfies_all_limits_the_gains_are_lowered():
    made = limiter(SafetyConfig(step_rad=0.01))
    carried = moved(1, 2.0)  # the leg was moved by hand: at full stiffness the old target would need 200 Nm
    made.hold_position(POSE, carried, STILL)
    assert abs(made.position[1] - POSE[1]) <= 0.01 + 1e-12
    assert pd_torque(made, carried, STILL)[1] == pytest.approx(-TORQUE)
    assert 0 < made.kp[1] < 100
    assert (np.delete(made.kp, 1) == 100).all()
    assert Reason.GAIN_REDUCED in reasons(made)


def test_damping_is_weaker_for_a_joint_so_fast_that_it_would_need_too_much_torque():
    made = limiter()
    vel = STILL.copy()
    vel[0] = 20.0
    made.damp(vel)
    assert made.kd[0] * 20 == pytest.approx(TORQUE)
    assert (made.kd[1:] == DAMPING_KD).all()
    assert not made.kp.any()
    assert not made.torque.any()


TORQUE_CONTROL = a1_contract(kind="torque", offset=(0.0,) * 12, scale=(20.0,) * 12).control


def test_a_torque_command_has_torque_and_step_limits():
    made = limiter(control=TORQUE_CONTROL)
    made.push(np.full(12, 100.0), POSE, STILL)
    np.testing.assert_allclose(made.torque, TORQUE / 2)  # the step limit
    made.push(np.full(12, 100.0), POSE, STILL)
    np.testing.assert_allclose(made.torque, TORQUE)
    assert reasons(made) == {Reason.TORQUE_LIMIT, Reason.STEP_LIMIT}
    assert not made.kp.any()
    assert not made.kd.any()


def test_no_torque_drives_a_joint_over_its_edge_or_beyond_its_speed():
    made = limiter(control=TORQUE_CONTROL)
    pos, vel = POSE.copy(), STILL.copy()
    pos[0], pos[3], vel[1], vel[4] = 0.81, -0.81, 22.0, -22.0
    made.push(np.full(12, 10.0), pos, vel)
    assert made.torque[[0, 1]].tolist() == [0, 0]
    assert made.torque[[3, 4]].tolist() == [10, 10]
    made.push(np.full(12, -10.0), pos, vel)
    made.push(np.full(12, -10.0), pos, vel)
    assert made.torque[[3, 4]].tolist() == [0, 0]
    assert made.torque[[0, 1]].tolist() == [-10, -10]


numbers = st.floats(allow_nan=False, allow_infinity=False, width=64)
wild = arrays(np.float64, 12, elements=numbers | st.floats(-10, 10))
measured_pos = arrays(np.float64, 12, elements=st.floats(-6, 6))
measured_vel = arrays(np.float64, 12, elements=st.floats(-63, 63))
configs = st.builds(
    SafetyConfig,
    step_rad=st.none() | st.floats(0.001, 1),
    torque_fraction=st.floats(0.05, 1),
    damping_kd=st.floats(0.1, 50),
)


@settings(max_examples=60, deadline=None)
@given(configs, st.lists(st.tuples(wild, measured_pos, measured_vel), min_size=1, max_size=3))
def test_a_position_command_is_within_all_limits_for_any_input(config, ticks):
    made = limiter(config)
    before = POSE.copy()
    for target, pos, vel in ticks:
        made.hold_position(target, pos, vel)
        for part in (made.position, made.kp, made.kd, made.torque):
            assert np.isfinite(part).all()
        assert (made.position >= LOW).all()
        assert (made.position <= HIGH).all()
        step = min(config.step_rad or np.inf, VELOCITY * PERIOD)
        assert (np.abs(made.position - before) <= step + 1e-9).all()
        torque = pd_torque(made, pos, vel)
        assert (np.abs(torque) <= TORQUE * config.torque_fraction * (1 + 1e-6)).all()
        too_fast = np.abs(vel) > VELOCITY
        assert (torque[too_fast] * np.sign(vel[too_fast]) <= 1e-6).all()
        assert (made.kp >= 0).all()
        assert (made.kp <= 100).all()
        assert (made.kd >= 0).all()
        before = made.position.copy()
        made.damp(vel)
        assert (np.abs(made.kd * vel) <= TORQUE * config.torque_fraction * (1 + 1e-9)).all()


@settings(max_examples=40, deadline=None)
@given(configs, st.lists(st.tuples(wild, measured_pos, measured_vel), min_size=1, max_size=3))
def test_a_torque_command_is_within_all_limits_for_any_input(config, ticks):
    made = limiter(config, TORQUE_CONTROL)
    for torque, pos, vel in ticks:
        made.push(torque, pos, vel)
        assert np.isfinite(made.torque).all()
        assert (np.abs(made.torque) <= TORQUE * config.torque_fraction).all()
        assert (made.torque[(pos >= HIGH) | (vel > VELOCITY)] <= 0).all()
        assert (made.torque[(pos <= LOW) | (vel < -VELOCITY)] >= 0).all()


# -- limits of the hardware for contracts and commands -----------------------------------------------------------------


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


def test_another_robot_with_joints_of_the_same_names_is_not_an_a1():
    assert hardware_of(JOINTS, "a1") is A1
    assert hardware_of(JOINTS, "go1") is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kp": (5000.0,) * 12}, "kp of 'FL_hip_joint' is 5000; the A1 allows 180 Nm/rad at most"),
        ({"kd": (1.0,) * 11 + (9.0,)}, "kd of 'RR_calf_joint' is 9; the A1 allows 8 Nm s/rad at most"),
        ({"torque_limits": (1e9,) * 12}, "torque_limits of 'FL_hip_joint' is 1e[+]09; the A1 allows 33.5 Nm"),
        ({"velocity_limits": (60.0,) * 12}, "velocity_limits of 'FL_hip_joint' is 60; the A1 allows 52.4 rad"),
        ({"velocity_limits": (np.inf,) * 12}, "velocity_limits of 'FL_hip_joint' is inf; the A1 allows"),
        ({"position_limits": ((-100.0, 100.0),) * 12}, r"is \(-100, 100\); the A1 allows -0.803 to 0.803 rad"),
    ],
)
def test_a_contract_beyond_the_hardware_is_refused(tmp_path, given, message):
    """The digest matches, as of an export with these values."""
    contract = a1_contract(**given)
    with pytest.raises(ValueError, match=f"control.*{message}"):
        contract.check_edits()
    save_contract(contract, tmp_path)
    with pytest.raises(ValueError, match=message):
        Contract.read(tmp_path)


def test_gains_beyond_the_hardware_are_not_exported(tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    known = load_experiment("a1-walk")
    wild = replace(known, deploy=replace(known.deploy, kp=1000.0))
    monkeypatch.setattr("body_transformer.deploy.export.load_experiment", lambda name: wild)
    with pytest.raises(ValueError, match=r"control\.kp of 'FL_hip_joint' is 1000; the A1 allows 180"):
        export(Trained(make_policy(), "a1-walk"), tmp_path / "out")
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
def test_every_part_of_a_command_is_clipped_in_the_robots_own_order(sign):
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
