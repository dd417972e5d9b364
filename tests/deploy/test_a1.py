import sys
import time
import types
from typing import ClassVar

import numpy as np
import pytest

from body_transformer.deploy.robot import Command
from body_transformer.deploy.robots import open_robot
from body_transformer.deploy.robots.a1 import JOINTS

from . import fake_robot_interface as fake

ZEROS, ONES = np.zeros(12), np.ones(12)
HOME = np.array([-0.1, 0.8, -1.5, 0.1, 0.8, -1.5, -0.1, 1.0, -1.5, 0.1, 1.0, -1.5])
QUICK = {"damping_s": 0.0}


@pytest.fixture
def machine(monkeypatch):
    """Return the A1 behind a stand-in for Unitree's module."""
    monkeypatch.setattr(fake, "machine", fake.Machine())
    monkeypatch.setitem(sys.modules, "robot_interface", fake)
    return fake.machine


@pytest.fixture
def robot(machine):
    """Return the A1 in a session, after its first measurement."""
    with open_robot("a1", **QUICK) as robot:
        robot.read()
        yield robot


def command(position=HOME, kp=100.0, kd=1.0, torque=ZEROS) -> Command:
    return Command(np.asarray(position), ZEROS, kp * ONES, kd * ONES, np.asarray(torque))


def test_a_missing_module_is_an_error_with_instructions_only_when_the_a1_is_used(monkeypatch):
    monkeypatch.setitem(sys.modules, "robot_interface", None)
    with pytest.raises(ValueError, match=r"'robot_interface' is not installed; .*unitree_legged_sdk v3\.3\.1"):
        open_robot("a1")


def test_another_module_of_that_name_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "robot_interface", types.ModuleType("robot_interface"))
    with pytest.raises(ValueError, match=r"lacks UDP, Safety, .*v3\.3\.x"):
        open_robot("a1")


def test_the_joints_are_in_unitrees_order():
    names = [f"{leg}_{part}_joint" for leg in ("FR", "FL", "RR", "RL") for part in ("hip", "thigh", "calf")]
    assert list(JOINTS) == names


def test_other_joints_than_the_a1s_are_refused(machine):
    open_robot("a1", expected=JOINTS[::-1])
    with pytest.raises(ValueError, match="the A1's joints are FR_hip_joint"):
        open_robot("a1", expected=(*JOINTS[:-1], "tail_joint"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"power_level": 0}, "power_level must be a whole number from 1 to 10; got 0"),
        ({"power_level": 11}, "power_level must be a whole number from 1 to 10; got 11"),
        ({"power_level": 2.5}, "power_level must be a whole number; got 2.5"),
        ({"power_level": True}, "power_level must be a whole number; got True"),
        ({"position_margin_rad": 1.0}, "position_margin_rad must be between 0 and 0.5; got 1.0"),
        ({"damping_kd": -1.0}, "damping_kd must be above 0, and at most 20; got -1.0"),
        ({"damping_s": 60.0}, "damping_s must be from 0 to 10; got 60.0"),
        ({"powerlevel": 2}, "unknown option of the A1 'powerlevel'; did you mean 'power_level'"),
    ],
)
def test_invalid_options_are_refused(machine, options, message):
    with pytest.raises(ValueError, match=message):
        open_robot("a1", **options)


# -- measurements ------------------------------------------------------------------------------------------------------


def test_a_measurement_has_the_robots_order_signs_and_units(machine):
    for i, motor in enumerate(machine.state.motorState):
        motor.q, motor.dq, motor.tauEst = 0.1 * i, -0.2 * i, 0.5 * i
    machine.state.imu.quaternion = [0.5, -0.5, 0.25, 0.125]
    machine.state.imu.gyroscope = [0.25, -0.5, 1.0]
    with open_robot("a1", **QUICK) as robot:
        state = robot.read()
    np.testing.assert_allclose(state.joint_pos, 0.1 * np.arange(12), rtol=1e-6)
    np.testing.assert_allclose(state.joint_vel, -0.2 * np.arange(12), rtol=1e-6)
    np.testing.assert_allclose(state.joint_torque, 0.5 * np.arange(12), rtol=1e-6)
    np.testing.assert_array_equal(state.quaternion, [0.5, -0.5, 0.25, 0.125])  # w x y z, as the SDK has it
    np.testing.assert_array_equal(state.angular_velocity, [0.25, -0.5, 1.0])
    assert {a.dtype for a in (state.joint_pos, state.quaternion, state.angular_velocity)} == {np.dtype(np.float64)}


def test_nothing_new_is_none_and_not_zeros(machine):
    machine.answers = False
    with open_robot("a1", **QUICK) as robot:
        assert robot.read() is None
        machine.measure()
        assert robot.read() is not None
        assert robot.read() is None


def test_the_newest_of_several_is_read(machine, robot):
    for _ in range(5):
        machine.measure()
    newest = robot.read()
    assert newest.sequence == 1 + 5
    assert newest.stamp_s == pytest.approx(0.01)


def test_a_late_state_does_not_replace_a_newer_one(machine, robot):
    machine.measure(ms=10)
    machine.state.motorState[0].q = 3.0
    machine.measure(ms=-5)
    state = robot.read()
    assert state.stamp_s == pytest.approx(0.01)
    assert state.joint_pos[0] == 0.0
    assert robot.read() is None


def test_the_robots_clock_may_wrap(machine):
    machine.state.tick = 2**32 - 3
    with open_robot("a1", **QUICK) as robot:
        robot.read()
        machine.measure(ms=4)
        assert machine.state.tick == 3
        assert robot.read().stamp_s == pytest.approx(0.004)


# -- commands ----------------------------------------------------------------------------------------------------------


def sent(machine, name: str, index: int = -1) -> np.ndarray:
    return np.array([getattr(motor, name) for motor in machine.commands[index].motorCmd])


def test_the_first_command_brakes_and_moves_nothing(machine):
    with open_robot("a1", damping_kd=3.0, **QUICK):
        assert len(machine.commands) == 1
        assert machine.commands[0].levelFlag == 0xFF
        for name, value in {"Kp": 0.0, "Kd": 3.0, "tau": 0.0, "dq": 0.0}.items():
            np.testing.assert_array_equal(sent(machine, name)[:12], value)


def test_listen_only_gives_no_torque_and_leaves_without_a_command(machine):
    with open_robot("a1", listen_only=True) as robot:
        robot.read()
        with pytest.raises(ValueError, match="listen_only: no command is sent to this A1"):
            robot.send(command())
    assert len(machine.commands) == 2
    for cmd in machine.commands:
        assert {(motor.Kp, motor.Kd, motor.tau) for motor in cmd.motorCmd} == {(0.0, 0.0, 0.0)}
    with pytest.raises(ValueError, match="not connected"):
        robot.read()


def test_a_command_reaches_every_motor_in_servo_mode(machine, robot):
    rng = np.random.default_rng(0)
    wanted = Command(HOME, rng.normal(size=12), rng.uniform(1, 9, 12), rng.uniform(1, 9, 12), rng.normal(size=12))
    back = robot.send(wanted)
    names = {"position": "q", "velocity": "dq", "kp": "Kp", "kd": "Kd", "torque": "tau"}
    for ours, theirs in names.items():
        values = sent(machine, theirs)[:12]
        np.testing.assert_allclose(values, getattr(wanted, ours), rtol=1e-6)
        np.testing.assert_array_equal(getattr(back, ours), values)  # what was really sent, in float32
    np.testing.assert_array_equal(sent(machine, "mode"), [0x0A] * 12 + [0] * 8)


def test_a_target_without_a_gain_is_sent_as_no_target(machine, robot):
    back = robot.send(Command.damping(12, 3.0))
    np.testing.assert_allclose(sent(machine, "q")[:12], 2.146e9, rtol=1e-6)
    np.testing.assert_array_equal(sent(machine, "dq")[:12], 0.0)
    np.testing.assert_array_equal(back.position, 0.0)
    robot.send(command(kp=0.0, kd=0.0, torque=ONES))
    np.testing.assert_allclose(sent(machine, "dq")[:12], 16000.0)
    np.testing.assert_array_equal(sent(machine, "tau")[:12], 1.0)


@pytest.mark.parametrize(("sdks", "hip"), [(True, 0.802), (False, 0.803)], ids=["the SDK's", "our own"])
def test_a_position_limit_clips_targets_and_send_returns_them(machine, sdks, hip):
    with open_robot("a1", position_limit=sdks, **QUICK) as robot:
        back = robot.send(command(np.full(12, 9.0)))
        np.testing.assert_allclose(back.position.reshape(4, 3), [[hip, 4.19, -0.916]] * 4, rtol=1e-6)
        np.testing.assert_array_equal(sent(machine, "q")[:12], back.position)


def test_a_command_beyond_the_a1s_hardware_is_clipped_and_send_returns_it(machine, robot):
    back = robot.send(command(kp=5000.0, kd=400.0, torque=np.full(12, -1e5)))
    for theirs, ours, value in (("Kp", back.kp, 180.0), ("Kd", back.kd, 20.0), ("tau", back.torque, -33.5)):
        np.testing.assert_array_equal(sent(machine, theirs)[:12], value)
        np.testing.assert_array_equal(ours, value)
    np.testing.assert_allclose(back.position, HOME, rtol=1e-6)


@pytest.mark.parametrize(("level", "trips"), [(1, True), (2, True), (3, False), (10, False)])
def test_too_much_power_for_the_level_leads_to_damping_that_stays(machine, level, trips):
    machine.state.motorState[4].tauEst, machine.state.motorState[4].dq = 25.0, -10.0  # 250 W
    with open_robot("a1", power_level=level, **QUICK) as robot:
        robot.read()
        back = robot.send(command())
        assert bool(robot.tripped) == trips
        np.testing.assert_array_equal(back.kp, 0.0 if trips else 100.0)
        machine.state.motorState[4].dq = 0.0
        machine.measure()
        robot.read()
        robot.send(command())
        np.testing.assert_array_equal(sent(machine, "Kp")[:12], 0.0 if trips else 100.0)
        np.testing.assert_array_equal(sent(machine, "Kd")[:12], 5.0 if trips else 1.0)


@pytest.mark.parametrize("what", [{"Kp": 0.0}, {"mode": 0}], ids=["no gain", "not a servo"])
def test_a_protection_that_returns_nothing_but_weakens_a_motor_has_stopped_the_robot(machine, robot, monkeypatch, what):
    """In some releases PowerProtect returns nothing."""

    def protect(self, cmd, state, factor):
        for name, value in what.items():
            setattr(cmd.motorCmd[7], name, value)

    monkeypatch.setattr(fake.Safety, "PowerProtect", protect)
    back = robot.send(command())
    assert robot.tripped == "PowerProtect at level 1"
    np.testing.assert_array_equal(back.kp, 0.0)
    np.testing.assert_array_equal(sent(machine, "mode")[:12], 0x0A)
    np.testing.assert_array_equal(sent(machine, "Kd")[:12], 5.0)


@pytest.mark.parametrize("name", ["PositionLimit", "PowerProtect", "PositionProtect"])
@pytest.mark.parametrize("first", [True, False], ids=["at once", "after a good command"])
def test_a_protection_that_raises_has_stopped_the_robot_and_it_gets_damping(machine, monkeypatch, name, first):
    for motor, angle in zip(machine.state.motorState, HOME, strict=False):
        motor.q = angle

    def broken(self, cmd, *more):
        cmd.motorCmd[3].Kd = 0.25
        raise RuntimeError("no such motor")

    with open_robot("a1", position_margin_rad=0.087, **QUICK) as robot:
        robot.read()
        if not first:
            robot.send(command())
            np.testing.assert_array_equal(sent(machine, "Kp")[:12], 100.0)
        monkeypatch.setattr(fake.Safety, name, broken)
        back = robot.send(command())
        assert robot.tripped == f"{name} failed: no such motor"
        for got in (back.kp, sent(machine, "Kp")[:12]):
            np.testing.assert_array_equal(got, 0.0)
        np.testing.assert_array_equal(sent(machine, "Kd")[:12], 5.0)
        before = len(machine.commands)
    assert len(machine.commands) > before
    np.testing.assert_array_equal(sent(machine, "Kp")[:12], 0.0)
    np.testing.assert_array_equal(sent(machine, "Kd")[:12], 5.0)


def test_damping_is_sent_whatever_the_protections_do(machine, monkeypatch):
    def broken(self, cmd, *more):
        raise RuntimeError("no such motor")

    with open_robot("a1", position_margin_rad=0.087, **QUICK) as robot:
        robot.read()
        for name in ("PositionLimit", "PowerProtect", "PositionProtect"):
            monkeypatch.setattr(fake.Safety, name, broken)
        back = robot.send(Command.damping(12, 3.0))
        assert robot.tripped == ""
        for got in (back.kd, sent(machine, "Kd")[:12]):
            np.testing.assert_array_equal(got, 3.0)
        robot.send(command(kp=0.0, torque=ONES))  # not damping
        assert robot.tripped == "PositionLimit failed: no such motor"
        np.testing.assert_array_equal(sent(machine, "tau")[:12], 0.0)


@pytest.mark.parametrize(
    ("low", "high", "stops"),
    [(0x20, 0x02, True), (0x00, 0x02, True), (0x20, 0x00, False), (0xFF, 0xFD, False)],
    ids=["L2+B", "B", "L2", "all but B"],
)
def test_b_on_the_remote_is_an_emergency_stop_that_stays(machine, robot, low, high, stops):
    machine.state.wirelessRemote = [0x55, 0x51, low, high] + [0] * 36
    machine.measure()
    robot.read()
    assert robot.tripped == ("B on the remote" if stops else "")
    machine.state.wirelessRemote = [0x55, 0x51, 0, 0] + [0] * 36
    machine.measure()
    robot.read()
    np.testing.assert_array_equal(robot.send(command()).kp, 0.0 if stops else 100.0)


def test_a_module_without_the_remote_is_refused(machine, monkeypatch):
    class WithoutRemote(fake.LowState):
        _fields: ClassVar[dict] = {k: v for k, v in fake.LowState._fields.items() if k != "wirelessRemote"}

    monkeypatch.setattr(fake, "LowState", WithoutRemote)
    with pytest.raises(ValueError, match="no wirelessRemote"), open_robot("a1", **QUICK):
        pass
    assert machine.commands == []


def test_a_joint_near_its_end_leads_to_damping_if_asked_for(machine):
    for motor, angle in zip(machine.state.motorState, HOME, strict=False):
        motor.q = angle
    with open_robot("a1", position_margin_rad=0.087, **QUICK) as robot:
        robot.read()
        np.testing.assert_array_equal(robot.send(command()).kp, 100.0)
        machine.state.motorState[5].q = -2.65
        machine.measure()
        robot.read()
        np.testing.assert_array_equal(robot.send(command()).kp, 0.0)
        assert robot.tripped == "PositionProtect at 0.087 rad"


@pytest.mark.parametrize("bad", [np.full(12, np.nan), np.full(12, np.inf), np.zeros(11)])
def test_an_invalid_command_is_not_sent(machine, robot, bad):
    with pytest.raises(ValueError, match="position of a command must be 12 finite numbers"):
        robot.send(command(bad))
    assert len(machine.commands) == 1


def test_the_robot_is_left_in_damping(machine):
    with open_robot("a1", damping_kd=3.0, damping_s=0.05) as robot:
        robot.send(command())
        before, started = len(machine.commands), time.monotonic()
    assert time.monotonic() - started >= 0.05
    assert len(machine.commands) - before >= 2
    for index in range(before, len(machine.commands)):
        np.testing.assert_array_equal(sent(machine, "Kp", index)[:12], 0.0)
        np.testing.assert_array_equal(sent(machine, "Kd", index)[:12], 3.0)
        np.testing.assert_array_equal(sent(machine, "tau", index)[:12], 0.0)


def test_the_robot_is_left_in_damping_after_a_crash_too(machine):
    def crash() -> None:
        with open_robot("a1", **QUICK) as robot:
            robot.send(command())
            raise RuntimeError("the policy crashed")

    with pytest.raises(RuntimeError, match="the policy crashed"):
        crash()
    np.testing.assert_array_equal(sent(machine, "Kp")[:12], 0.0)
    np.testing.assert_array_equal(sent(machine, "Kd")[:12], 5.0)


def test_outside_of_with_reading_and_sending_are_errors(machine):
    robot = open_robot("a1")
    with pytest.raises(ValueError, match="not connected"):
        robot.read()
    with pytest.raises(ValueError, match="not connected"):
        robot.send(command())
    assert machine.commands == []


def test_a_module_that_hands_out_copies_of_the_motors_is_refused(machine, monkeypatch):
    class Copies(fake.LowCmd):
        def __getattribute__(self, name):
            value = super().__getattribute__(name)
            return [fake.MotorCmd() for _ in value] if name == "motorCmd" else value

    monkeypatch.setattr(fake, "LowCmd", Copies)
    with pytest.raises(ValueError, match="copies of motorCmd"), open_robot("a1", **QUICK):
        pass
    assert machine.commands == []
