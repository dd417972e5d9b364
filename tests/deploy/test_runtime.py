"""The loop and its phases, in virtual time."""

import os
import signal
import threading
from dataclasses import replace

import numpy as np
import pytest

from body_transformer.deploy.action_pipeline import LowPass
from body_transformer.deploy.contract import Environment
from body_transformer.deploy.real_time import SIGNALS
from body_transformer.deploy.robot import Command
from body_transformer.deploy.runtime import Runtime
from body_transformer.deploy.runtime_config import Phase, RuntimeConfig
from body_transformer.deploy.safety import Reason, SafetyConfig
from body_transformer.deploy.saved_log import SavedLog

from .virtual_robot import (
    DEFAULT_POSE,
    JOINTS,
    LYING,
    ROBOT_JOINTS,
    SinePolicy,
    VirtualRobot,
    VirtualTime,
    a1_contract,
    a1_obs,
    is_damping,
    virtual_run,
)


def in_contract_order(values: np.ndarray) -> np.ndarray:
    return values[..., [ROBOT_JOINTS.index(name) for name in JOINTS]]


# -- the loop ----------------------------------------------------------------------------------------------------------


def test_a_run_goes_from_ramp_to_policy_to_damping_without_interventions():
    runtime, robot = virtual_run()
    result = runtime.run()
    assert result.stop is None
    assert result.interventions == {}
    assert result.missed == 0
    assert result.policy_seconds == pytest.approx(3.0)
    events = [(event.text, round(event.time_s, 9)) for event in runtime.log.events]
    # 1.5 times 1.1 rad at 1 rad/s is longer than ramp_s
    assert events == [("ramp", 0.04), ("hold", 1.68), ("policy", 1.90), ("damping", 4.90), ("done", 5.10)]
    assert is_damping(robot.sent[-1][1])


def test_ticks_do_not_drift():
    runtime, robot = virtual_run(seconds=100.0)
    runtime.run()
    sent = np.array([at for at, _ in robot.sent[:-1]])
    np.testing.assert_allclose(sent, np.arange(len(sent)) * 0.02, atol=1e-9)


def test_work_and_late_wake_ups_within_the_period_do_not_move_the_next_tick():
    time = VirtualTime()
    rng = np.random.default_rng(0)

    def oversleep(seconds: float) -> None:
        time.now_s += seconds + rng.uniform(0, 0.004)

    robot = VirtualRobot(time)
    policy = SinePolicy(time, takes_s=0.012)
    config = RuntimeConfig(seconds=20.0)
    runtime = Runtime(a1_contract(), policy, robot, config, clock=time.clock, sleep=oversleep)
    robot.begun_s = time.now_s
    result = runtime.run()
    assert result.missed == 0
    late = runtime.log.rows()["late_ms"]
    assert late.min() >= 0
    assert late.max() < 4
    assert late[-100:].mean() == pytest.approx(2, abs=0.5)


class Counted:
    """A policy without memory whose calls take a given time."""

    def __init__(self, time: VirtualTime, takes_s: float) -> None:
        self.calls, self.time, self.takes_s = 0, time, takes_s

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        self.calls += 1
        self.time.now_s += self.takes_s
        return (0.3 * np.sin(7 * obs[:12] + 3 * obs[12:24])).astype(np.float32)


@pytest.mark.parametrize(("takes_s", "calls"), [(0.0001, 8), (0.0012, 1), (0.006, 0)])
def test_a_rehearsal_changes_no_command_and_a_slow_policy_has_none(takes_s, calls):
    sent, asked = {}, {}
    for rehearse in (True, False):
        time = VirtualTime()
        policy, robot = Counted(time, takes_s), VirtualRobot(time)
        config = RuntimeConfig(seconds=3.0, warm_up=1, rehearse=rehearse)
        runtime = Runtime(a1_contract(), policy, robot, config, clock=time.clock, sleep=time.sleep)
        robot.begun_s = time.now_s
        result = runtime.run()
        assert result.missed == 0
        assert result.stop is None
        assert runtime.log.rows()["late_ms"].max() < 1e-6
        sent[rehearse], asked[rehearse] = robot.sent, policy.calls - 1
    assert asked[False] == 150
    rehearsals = len(sent[True]) - 2  # before all ticks but the first; after the last there is one more command
    assert asked[True] == 150 + rehearsals * calls
    for (at, command), (plain_at, plain) in zip(sent[True], sent[False], strict=True):
        assert at == pytest.approx(plain_at, abs=1e-9)
        for name in ("position", "kp", "kd", "torque"):
            np.testing.assert_array_equal(getattr(command, name), getattr(plain, name))


def test_the_loop_can_run_at_a_multiple_of_the_policys_rate():
    policy = SinePolicy()
    runtime, _robot = virtual_run(policy=policy, loop_hz=200.0, robot={"hz": 500.0})
    result = runtime.run()
    assert result.interventions == {}
    assert policy.calls == 3 + 150
    rows = runtime.log.rows()
    walking = rows["phase"] == Phase.POLICY
    assert walking.sum() == 600
    position = rows["command"][walking][:, 0]
    # four equal ticks per policy step, and the filter runs at the policy's rate
    steps = np.diff(position, axis=0)[3:]
    np.testing.assert_allclose(steps[0:4], np.broadcast_to(steps[0], (4, 12)), atol=1e-12)
    assert np.abs(steps[3] - steps[4]).max() > 1e-4
    changes = np.diff(rows["action"][walking], axis=0).any(axis=1).nonzero()[0] + 1
    assert set(changes % 4) == {0}


def test_the_filtered_targets_are_those_of_the_filter():
    runtime, _robot = virtual_run()
    runtime.run()
    rows = runtime.log.rows()
    active = (rows["phase"] >= Phase.RAMP) & (rows["phase"] <= Phase.POLICY)
    low_pass = LowPass(13, 50, 12)
    low_pass.reset(LYING)
    expected = np.array([low_pass(target).copy() for target in rows["target"][active]])
    np.testing.assert_array_equal(rows["command"][active][:, 0], expected)
    unfiltered, _ = virtual_run(filter=False)
    unfiltered.run()
    rows = unfiltered.log.rows()
    np.testing.assert_array_equal(rows["command"][active][:, 0], rows["target"][active])


def test_a_control_step_is_a_tick_that_asked_the_policy():
    runtime, _robot = virtual_run(loop_hz=200.0, policy=SinePolicy(takes_s=0.001), seconds=1.0)
    result = runtime.run()
    asked = np.isfinite(runtime.log.rows()["policy_ms"])
    assert asked.sum() == 50
    assert result.work_ms["p50"] == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["seconds", "ramp_s", "warm_up", "log_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), True])
def test_an_invalid_setting_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be (above 0|a finite number|a whole number); got"):
        RuntimeConfig(**{name: value})


@pytest.mark.parametrize("value", [0, -1.0, float("inf"), None, "fast"])
def test_an_invalid_safety_setting_is_refused(value):
    with pytest.raises(ValueError, match=r"stale_ms must be (above 0|a finite number); got"):
        SafetyConfig(stale_ms=value)
    with pytest.raises(ValueError, match="torque_fraction must be at most 1"):
        SafetyConfig(torque_fraction=1.5)


def test_a_runtime_runs_once():
    runtime, _ = virtual_run()
    runtime.run()
    with pytest.raises(ValueError, match="runs once"):
        runtime.run()


# -- joints ------------------------------------------------------------------------------------------------------------


def test_every_joint_gets_its_target_whatever_the_robots_order():
    runtime, robot = virtual_run()
    runtime.run()
    held = [command for at, command in robot.sent if 1.7 < at < 1.8]
    np.testing.assert_allclose(in_contract_order(held[-1].position), DEFAULT_POSE, atol=1e-3)
    straight, same = virtual_run(robot={"joints": JOINTS})
    straight.run()
    for (_, ours), (_, theirs) in zip(same.sent, robot.sent, strict=True):
        np.testing.assert_array_equal(ours.position, in_contract_order(theirs.position))


def test_a_robot_with_other_joints_is_refused():
    with pytest.raises(ValueError, match="the robot's joints are not the contract's"):
        virtual_run(robot={"joints": (*ROBOT_JOINTS, "tail")})


# -- before the policy -------------------------------------------------------------------------------------------------


def test_the_ramp_starts_at_the_measured_pose_and_keeps_to_its_speed():
    runtime, robot = virtual_run(ramp_s=0.1)
    runtime.run()
    ramp = np.array([command.position for at, command in robot.sent if command.kp.any() and at < 1.8])
    assert np.abs(in_contract_order(ramp[0]) - LYING).max() < 0.01
    assert np.abs(np.diff(ramp, axis=0)).max() / 0.02 < 1.0 + 1e-2
    assert np.abs(np.diff(ramp, axis=0)).max() / 0.02 > 0.9


def test_the_policy_starts_from_the_default_pose_without_a_jump():
    runtime, robot = virtual_run(policy=lambda obs: np.zeros(12, np.float32))
    runtime.run()
    walk = [in_contract_order(command.position) for at, command in robot.sent if 1.8 < at < 4.8]
    np.testing.assert_allclose(walk, np.broadcast_to(DEFAULT_POSE, np.shape(walk)), atol=1e-3)


def test_the_policy_is_warmed_up_before_anything_is_sent():
    asked_before = []

    class Watching(SinePolicy):
        def __call__(self, obs):
            asked_before.append(len(robot.sent))
            return super().__call__(obs)

    runtime, robot = virtual_run(policy=Watching(), warm_up=7)
    runtime.run()
    assert asked_before[:8] == [0] * 7 + [asked_before[7]]
    assert asked_before[7] > 80


@pytest.mark.parametrize("action", [np.full(12, np.nan), np.zeros(11), np.zeros((2, 12))])
def test_a_broken_policy_is_found_at_the_warm_up(action):
    runtime, robot = virtual_run(policy=lambda obs: action)
    with pytest.raises(ValueError, match="warm-up: the policy must give 12 finite actions"):
        runtime.run()
    assert robot.sent == []


def test_a_policy_that_is_always_slower_than_the_period_is_found_at_the_warm_up():
    runtime, robot = virtual_run(policy=SinePolicy(takes_s=0.025))
    with pytest.raises(ValueError, match="the policy takes 25 ms at best; a period has 20"):
        runtime.run()
    assert robot.sent == []


def test_the_policy_never_starts_on_a_robot_that_does_not_follow_the_ramp():
    policy = SinePolicy()
    runtime, robot = virtual_run(policy=policy)
    robot._advance = lambda seconds: None
    result = runtime.run()
    assert result.stop.reason is Reason.POSE_NOT_REACHED
    assert "calf_joint is 1.10 rad away" in result.stop.detail
    assert policy.calls == 3


@pytest.mark.parametrize("change", [{"torque_limits": (float("inf"),) * 12}, {"velocity_limits": (float("inf"),) * 12}])
def test_a_contract_without_limits_is_refused(change):
    with pytest.raises(ValueError, match=f"{next(iter(change))} of its contract must all be finite"):
        virtual_run(contract=a1_contract(**change))


def test_a_contract_without_a_control_is_refused():
    with pytest.raises(ValueError, match="cannot run on a robot: experiment 'a1-walk' has no `deploy` section"):
        virtual_run(contract=replace(a1_contract(), control=None))


def test_the_command_can_differ_from_the_contracts():
    seen = []
    runtime, _ = virtual_run(
        policy=lambda obs: seen.append(obs[9:12].copy()) or np.zeros(12, np.float32), command=(0.2, 0.1, 0.4)
    )
    runtime.run()
    np.testing.assert_allclose(seen[-1], [0.4, 0.2, 0.1])
    with pytest.raises(ValueError, match="the command must have 3 entries; got 2"):
        virtual_run(command=(0.2, 0.1))


def test_the_policy_sees_its_previous_action():
    seen = []

    def policy(obs):
        seen.append(obs[36:].copy())
        return np.full(12, 0.01 * len(seen), np.float32)

    runtime, _ = virtual_run(policy=policy)
    runtime.run()
    assert seen[3].tolist() == [0] * 12  # the first after the warm-up
    np.testing.assert_allclose(seen[4], 0.04)
    np.testing.assert_allclose(seen[40], 0.4)


@pytest.mark.parametrize("value", [float("nan"), 1e9, -5.01])
def test_a_contracts_command_beyond_the_allowed_range_is_refused(value):
    contract = a1_contract(command=(0.5, value, 0.0))
    with pytest.raises(ValueError, match="a command's entries must be from -5 to 5; got"):
        RuntimeConfig().policy_command(contract)
    assert RuntimeConfig(command=(5.0, -5.0, 0.0)).command == (5.0, -5.0, 0.0)


def test_a_command_beyond_the_trained_range_is_refused_with_the_range():
    contract = replace(a1_contract(), environment=Environment(command_range=((-1.0, 1.0), (-0.5, 0.5), (-0.7, 0.7))))
    virtual_run(contract=contract, command=(1.0, -0.5, 0.7))
    message = "the policy was trained with commands of -1 to 1, -0.5 to 0.5, -0.7 to 0.7; got 1.2, 0, 0"
    with pytest.raises(ValueError, match=message):
        virtual_run(contract=contract, command=(1.2, 0.0, 0.0))


def test_a_robot_that_does_not_estimate_an_observed_linear_velocity_is_refused(monkeypatch):
    obs = (replace(a1_obs()[0], source="linear_velocity"), *a1_obs()[1:])
    with pytest.raises(ValueError, match="the policy observes the linear velocity, which this robot does not estimate"):
        virtual_run(contract=a1_contract(obs))

    def estimated(state, seconds):
        return [replace(state, linear_velocity=np.full(3, seconds))]

    monkeypatch.setattr(VirtualRobot, "estimates_velocity", True)
    runtime, _ = virtual_run(contract=a1_contract(obs), fault=estimated)
    assert runtime.run().stop is None
    assert np.ptp(runtime.log.rows()["obs"][:, 0]) > 1


def test_a_torque_policy_ramps_by_position_and_then_commands_torques():
    contract = a1_contract(kind="torque", scale=(20.0,) * 12, offset=(0.0,) * 12)
    runtime, robot = virtual_run(contract=contract)
    result = runtime.run()
    assert result.stop is None
    walk = [command for at, command in robot.sent if 1.9 < at < 4.8]
    assert not any(command.kp.any() or command.kd.any() for command in walk)
    assert 4 < max(np.abs(command.torque).max() for command in walk) <= 33.5


# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_s", [0.5, 1.7, 2.5])
def test_a_stop_damps_within_one_period_and_stays(at_s):
    runtime, robot = virtual_run(
        lambda state, seconds: runtime.stop("the red button") or [state] if seconds >= at_s else [state]
    )
    result = runtime.run()
    assert str(result.stop) == "emergency stop: the red button"
    assert robot.damped_s == pytest.approx(at_s, abs=0.02)
    assert result.interventions == {"emergency stop": 1}
    assert robot.sent[-1][0] - robot.damped_s == pytest.approx(0.2)


@pytest.mark.parametrize("what", ["stop", "tilt", "trip"])
def test_after_a_planned_end_a_stop_is_counted_and_logged_but_does_not_end_the_run_early(what, tmp_path):
    """The policy ends at 4.9 s, damping at 5.1 s."""

    def fault(state, seconds):
        if seconds < 5.0:
            return [state]
        if what == "stop":
            runtime.stop("SIGINT")
        elif what == "tilt":
            return [replace(state, quaternion=np.array([0.0, 1.0, 0.0, 0.0]))]
        else:
            robot.tripped = "B on the remote"
        return [state]

    runtime, robot = virtual_run(fault)
    result = runtime.run()
    assert result.stop is None
    assert result.policy_seconds == pytest.approx(3.0)
    assert is_damping(robot.sent[-1][1])
    ((reason, count),) = result.interventions.items()
    assert count == 1
    said = SavedLog.load(runtime.save_log(tmp_path)).description
    assert said.stop is None
    late = [event for event in said.events if event.kind not in ("phase", "request")]
    assert [event.kind for event in late] == ["afterwards"]
    assert late[0].text.startswith(reason)
    assert sum(event.kind == "request" for event in said.events) == (what == "stop")


def test_an_error_after_a_planned_end_is_a_stop():
    runtime, robot = virtual_run()
    read = robot.read
    robot.read = lambda: 1 / 0 if robot.time.now_s - robot.begun_s > 5.0 else read()
    with pytest.raises(ZeroDivisionError):
        runtime.run()
    assert runtime.result().stop.reason is Reason.ERROR


def test_every_signal_of_a_terminal_is_an_emergency_stop():
    """Ctrl-C, Ctrl-\\, closing it, and Ctrl-Z, which would leave the robot with its last command."""
    assert {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP} <= set(SIGNALS)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_is_an_emergency_stop_and_the_old_handler_comes_back(number):
    before = signal.getsignal(number)

    def fault(state, seconds):
        if state.sequence == 500:  # at 2.5 s
            os.kill(os.getpid(), number)
        return [state]

    runtime, robot = virtual_run(fault)
    result = runtime.run()
    assert str(result.stop) == f"emergency stop: {number.name}"
    assert robot.damped_s == pytest.approx(2.5, abs=0.02)
    assert signal.getsignal(number) is before


def test_a_runtime_works_outside_the_main_thread():
    runtime, _robot = virtual_run()
    results = []
    thread = threading.Thread(target=lambda: results.append(runtime.run()))
    thread.start()
    thread.join(30)
    assert results[0].stop is None


@pytest.mark.parametrize("error", [RuntimeError("link down"), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("where", ["read", "policy", "send"])
def test_an_exception_leaves_the_robot_in_damping_and_is_raised_again(where, error):
    policy = SinePolicy()
    runtime, robot = virtual_run(policy=policy)
    target, name = (runtime, "_policy") if where == "policy" else (robot, where)
    as_before, calls = getattr(target, name), []

    def failing(*args):
        calls.append(None)
        if len(calls) == (20 if where == "policy" else 120):
            raise error
        return as_before(*args)

    setattr(target, name, failing)
    with pytest.raises(type(error)):
        runtime.run()
    assert not is_damping(robot.sent[-2][1])
    assert is_damping(robot.sent[-1][1])
    assert runtime.result().stop.reason is Reason.ERROR
    assert runtime.log.events[-1].kind == "error"


@pytest.mark.parametrize("failures", [2, 10**6], ids=["for a moment", "for good"])
def test_damping_is_tried_again_when_sending_it_fails_and_the_first_error_is_raised(failures):
    runtime, robot = virtual_run()
    send, left = robot.send, iter(range(failures))

    def failing(command: Command) -> Command:
        if len(robot.sent) == 100 and next(left, None) is not None:
            raise OSError("no buffer space")
        return send(command)

    robot.send = failing
    with pytest.raises(OSError, match="no buffer space"):
        runtime.run()
    texts = [event.text for event in runtime.log.events if event.kind == "error"]
    assert texts[-1] == "damping could not be sent: OSError: no buffer space"
    assert is_damping(robot.sent[-1][1]) == (failures == 2)


# -- dry run, what was sent, status ------------------------------------------------------------------------------------


def test_a_dry_run_computes_everything_and_sends_nothing():
    runtime, robot = virtual_run(dry_run=True)
    result = runtime.run()
    assert robot.sent == []
    assert result.stop is None
    assert result.policy_seconds == pytest.approx(3.0)
    rows = runtime.log.rows()
    assert np.isnan(rows["sent"]).all()
    assert np.isfinite(rows["command"]).all()
    assert rows["command"][rows["phase"] == Phase.POLICY][:, 2].any()


def test_the_log_has_requested_and_sent_commands_and_steps_count_from_the_sent_one():
    runtime, robot = virtual_run(safety=SafetyConfig(step_rad=0.05), policy=lambda obs: np.ones(12, np.float32))
    send = robot.send

    def held_back(command: Command) -> Command:
        """The robot's own protection keeps the first joint at -0.1 rad."""
        position = command.position.copy()
        position[0] = min(position[0], -0.1)
        return send(Command(position, command.velocity, command.kp, command.kd, command.torque))

    robot.send = held_back
    runtime.run()
    rows = runtime.log.rows()
    walking = rows["phase"] == Phase.POLICY
    joint = JOINTS.index(ROBOT_JOINTS[0])
    asked, sent = rows["command"][walking][:, 0, joint], rows["sent"][walking][:, 0, joint]
    assert sent.max() == -0.1
    assert asked[-1] == pytest.approx(-0.05)  # one step from the sent position, not the policy's 0.4


@pytest.mark.parametrize("sent", [np.full(12, np.nan), np.zeros(11)])
def test_an_invalid_command_returned_by_send_is_an_error(sent):
    runtime, robot = virtual_run()
    robot.send = lambda command: Command(sent, *np.zeros((4, len(sent))))
    with pytest.raises(ValueError, match="the robot's send returned"):
        runtime.run()


def test_a_driver_whose_send_returns_nothing_is_an_error_that_says_what_to_return():
    runtime, robot = virtual_run()
    send = robot.send
    robot.send = lambda command: send(command) and None
    with pytest.raises(ValueError, match="send must return the command that the robot received; got None"):
        runtime.run()
    assert is_damping(robot.sent[-1][1])
