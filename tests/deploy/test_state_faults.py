"""Faults of a robot's states: reaction and reaction time, in virtual time."""

import math
from dataclasses import replace

import numpy as np
import pytest

from body_transformer.deploy.robot import Command, State
from body_transformer.deploy.robots import open_robot
from body_transformer.deploy.runtime import Runtime
from body_transformer.deploy.runtime_config import Phase, RuntimeConfig
from body_transformer.deploy.safety import Freshness, Reason, SafetyConfig, Stop

from .real_time import in_real_time
from .virtual_robot import (
    DEFAULT_POSE,
    FAULT_S,
    JOINTS,
    LOST_S,
    PERIOD_S,
    ROBOT_JOINTS,
    STALE_S,
    SinePolicy,
    a1_contract,
    is_damping,
    later,
    stopped,
    virtual_run,
)


def reordered(state: State, order: np.ndarray) -> list[State]:
    return [replace(state, joint_pos=state.joint_pos[order], joint_vel=state.joint_vel[order])]


def only_once(change):
    return lambda state, seconds: change(state) if abs(seconds - FAULT_S) < 1e-9 else [state]


# -- missing, late, repeated and reordered states ----------------------------------------------------------------------


@pytest.mark.parametrize("stale_s", [STALE_S, 0.04])
def test_a_state_that_stops_coming_means_damping_when_the_last_is_too_old(stale_s):
    safety = SafetyConfig(stale_ms=1000 * stale_s)
    by_s = FAULT_S + stale_s + PERIOD_S
    _, runtime, robot = stopped(Reason.STATE_LOST, by_s, later(lambda state: []), safety=safety)
    assert robot.damped_s >= FAULT_S - 0.005 + stale_s
    assert runtime.log.rows()["age_ms"][-1] > 1000 * stale_s


def test_without_any_state_only_damping_is_sent():
    runtime, robot = virtual_run(lambda state, seconds: [], start_s=1.0)
    result = runtime.run()
    assert str(result.stop) == "no state: in 1 s"
    assert all(is_damping(command) for _, command in robot.sent)
    assert runtime.log.events[0].time_s == pytest.approx(1.0)


@pytest.mark.parametrize("wrong", [1, 5], ids=["the first", "the first five"])
def test_first_states_that_are_wrong_but_possible_move_nothing(wrong):
    """A target near the wrong pose would make the motors' own controllers kick."""

    def elsewhere(state: State, seconds: float) -> list[State]:
        moved = state.joint_pos + 0.4 * (state.sequence < wrong) * (-1.0) ** state.sequence
        return [replace(state, joint_pos=moved)]

    runtime, robot = virtual_run(elsewhere, pose=DEFAULT_POSE, robot={"hz": 50.0})
    pose = robot.pos.copy()
    runtime.run()
    for _, command in robot.sent[:50]:
        assert is_damping(command) or np.abs(command.position - pose).max() < 0.01


def test_states_that_keep_coming_but_ever_later_are_noticed():
    """A state arrives in every tick, but each is older than the one before."""

    def slower(state: State, seconds: float) -> list[State]:
        delay = max(seconds - 2.0, 0) * 0.4
        return [replace(state, received_s=state.received_s + delay)]

    # what was measured at t comes at t + 0.4 (t - 2): it is 100 ms old at 2.35 s
    result, runtime, robot = stopped(Reason.STATE_LOST, 2.39, slower)
    assert robot.damped_s >= 2.33
    assert (runtime.log.rows()["state"][60:-12] > 0).all()
    assert result.interventions["state late"] > 3


def test_neither_a_constant_latency_nor_a_third_of_the_states_lost_is_a_fault():
    runtime, _ = virtual_run(lambda state, seconds: [replace(state, received_s=state.received_s + 0.02)])
    result = runtime.run()
    assert (result.stop, result.interventions) == (None, {})
    rng = np.random.default_rng(1)
    runtime, _ = virtual_run(lambda state, seconds: [state] if rng.random() > 0.33 else [])
    result = runtime.run()
    assert result.stop is None
    assert set(result.interventions) <= {"state late"}


def test_a_sudden_latency_of_60_ms_is_counted_and_one_of_150_ms_is_too_much():
    runtime, _ = virtual_run(later(lambda state: [replace(state, received_s=state.received_s + 0.06)]))
    result = runtime.run()
    assert result.stop is None
    assert set(result.interventions) == {"state late"}
    stopped(Reason.STATE_LOST, LOST_S, later(lambda state: [replace(state, received_s=state.received_s + 0.15)]))


def test_clocks_that_drift_apart_are_no_latency_and_latency_is_no_drift():
    for rate in (1 - 1e-4, 1 + 1e-4):
        fresh = Freshness(2e-4)
        for k in range(50 * 3600):
            fresh.update(k * 0.02 * rate, 5.0 + k * 0.02)
        assert abs(fresh.age_s(5.0 + k * 0.02)) < 1e-4
    fresh = Freshness(2e-4)
    for k in range(500):
        fresh.update(k * 0.02, 5.0 + k * 0.02 + 0.05 * (k >= 250))
    assert fresh.age_s(5.0 + k * 0.02 + 0.05) == pytest.approx(0.05, abs=2e-3)


def test_duplicated_states_are_ignored_and_counted():
    def twice(state: State) -> list[State]:
        return [state, replace(state, received_s=state.received_s + 0.02)]

    runtime, robot = virtual_run(later(twice), robot={"hz": 25.0})  # every second tick sees the copy only
    result = runtime.run()
    assert result.stop is None
    assert set(result.interventions) == {"state duplicated"}
    assert result.interventions["state duplicated"] > 50
    clean, undisturbed = virtual_run(robot={"hz": 25.0})
    clean.run()
    for (_, command), (_, expected) in zip(robot.sent, undisturbed.sent, strict=True):
        np.testing.assert_array_equal(command.position, expected.position)


def test_one_state_that_is_repeated_for_ever_is_a_lost_state():
    kept: list[State] = []

    def repeat(state: State) -> list[State]:
        kept.append(state)
        return [replace(kept[0], received_s=state.received_s)]

    result, _, _ = stopped(Reason.STATE_LOST, LOST_S, later(repeat))
    assert result.interventions["state duplicated"] >= 4


def freeze(since_s: float, **values):
    """Repeat one measurement from a time on, while sequence and clock advance."""
    last: list[State] = []

    def fault(state: State, seconds: float) -> list[State]:
        if seconds < since_s - 1e-9 or not last:
            last[:] = [replace(state, **values) if seconds >= since_s - 1e-9 else state]
            return last.copy()
        return [replace(last[0], sequence=state.sequence, stamp_s=state.stamp_s, received_s=state.received_s)]

    return fault


@pytest.mark.parametrize("since_s", [0.5, 1.75, FAULT_S], ids=["ramp", "hold", "policy"])
def test_a_frozen_measurement_is_a_lost_state_even_if_sequence_and_clock_advance(since_s):
    result, _, robot = stopped(Reason.STATE_LOST, since_s + STALE_S + PERIOD_S, freeze(since_s))
    assert result.interventions["state frozen"] >= 4
    assert robot.damped_s >= since_s - 0.005 + STALE_S


def test_a_frozen_measurement_of_a_resting_robot_is_found_when_the_command_moves():
    stopped(Reason.STATE_LOST, 1.90 + STALE_S + 2 * PERIOD_S, freeze(1.85, joint_vel=np.zeros(12)))


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_robot_that_really_rests_is_not_frozen(dry_run):
    """Its sensors have no noise, and the policy keeps it where it is, or nothing is sent."""
    policy = SinePolicy() if dry_run else lambda obs: np.zeros(12, np.float32)
    runtime, _robot = virtual_run(policy=policy, damping_s=1.0, dry_run=dry_run)
    result = runtime.run()
    rows = runtime.log.rows()
    assert (rows["joint_pos"][-80:] == rows["joint_pos"][-1]).all()
    assert result.stop is None
    assert "state frozen" not in result.interventions


@pytest.mark.alone
@in_real_time
def test_the_simulated_robot_whose_measurement_freezes_is_damped_in_time():
    """This is the robot's process, across its link."""
    pytest.importorskip("mujoco")
    config = RuntimeConfig(seconds=5.0, loop_hz=100.0, ramp_s=0.5, hold_s=0.2, damping_s=0.1, warm_up=3)
    with open_robot("sim", expected=JOINTS, fault="frozen", fault_at_s=1.5) as robot:
        safety = SafetyConfig(clock_drift=0.2, max_missed=100)
        runtime = Runtime(a1_contract(), SinePolicy(), robot, config, safety)
        result = runtime.run()
    rows = runtime.log.rows()
    assert result.stop.reason is Reason.STATE_LOST
    assert result.interventions["state frozen"] >= 4
    came = rows["state"] == 1
    fresh = came & (rows["joint_pos"] != rows["joint_pos"][came][-1]).any(axis=1)
    damped = rows["now_s"][rows["phase"] >= Phase.DAMPING][0]
    assert rows["phase"][fresh][-1] == Phase.POLICY
    assert 0.5 * STALE_S < damped - rows["now_s"][fresh][-1] < STALE_S + 3 * PERIOD_S
    assert not rows["command"][rows["phase"] >= Phase.DAMPING][:, 2].any()  # kp


def test_reordered_states_are_ignored_and_the_newest_stays():
    held: list[State] = []

    def swap(state: State) -> list[State]:
        """Let every second state be overtaken by the next."""
        if state.sequence % 2:
            held.append(state)
            return []
        late = [replace(held.pop(), received_s=state.received_s + 0.015)] if held else []
        return [state, *late]

    runtime, _robot = virtual_run(later(swap), robot={"hz": 50.0})
    result = runtime.run()
    assert result.stop is None
    assert result.interventions["state reordered"] > 20
    rows = runtime.log.rows()
    new = rows["sequence"][rows["state"] == 1]
    assert (np.diff(new) < 0).any()  # the link did deliver them out of order


def test_a_robot_that_restarts_its_sequence_numbers_is_a_lost_state():
    stopped(Reason.STATE_LOST, LOST_S, later(lambda state: [replace(state, sequence=state.sequence - 400)]))


# -- invalid states ----------------------------------------------------------------------------------------------------


def with_first(state: State, name: str, value: float) -> State:
    array = getattr(state, name).copy()
    array[0] = value
    return replace(state, **{name: array})


NONSENSE = {
    "NaN joint": (lambda s: with_first(s, "joint_pos", math.nan), "state not finite"),
    "NaN speed": (lambda s: with_first(s, "joint_vel", math.nan), "state not finite"),
    "infinite torque": (lambda s: with_first(s, "joint_torque", -math.inf), "state not finite"),
    "NaN gyroscope": (lambda s: with_first(s, "angular_velocity", math.nan), "state not finite"),
    "NaN attitude": (lambda s: with_first(s, "quaternion", math.nan), "state not finite"),
    "NaN time": (lambda s: replace(s, stamp_s=math.nan), "state not finite"),
    "joint far away": (lambda s: with_first(s, "joint_pos", 50.0), "state absurd"),
    "huge joint": (lambda s: with_first(s, "joint_pos", 1e300), "state absurd"),
    "absurd speed": (lambda s: with_first(s, "joint_vel", 500.0), "state absurd"),
    "absurd torque": (lambda s: with_first(s, "joint_torque", 1e4), "state absurd"),
    "absurd gyroscope": (lambda s: with_first(s, "angular_velocity", 100.0), "state absurd"),
    "no attitude": (lambda s: replace(s, quaternion=np.zeros(4)), "state absurd"),
    "long attitude": (lambda s: replace(s, quaternion=np.full(4, 1e200)), "state absurd"),
    "absurd sequence": (lambda s: replace(s, sequence=2**70), "state absurd"),
    "negative sequence": (lambda s: replace(s, sequence=-5), "state absurd"),
    "absurd time": (lambda s: replace(s, stamp_s=1e300), "state absurd"),
    "time that goes back": (lambda s: replace(s, stamp_s=s.stamp_s - 5.0), "state absurd"),
    "a joint that jumps": (lambda s: with_first(s, "joint_pos", -0.7), "state jumped"),
    "too few joints": (lambda s: replace(s, joint_pos=s.joint_pos[:-1]), "state shape"),
    "a matrix": (lambda s: replace(s, joint_vel=s.joint_vel[None]), "state shape"),
    "integers": (lambda s: replace(s, joint_vel=s.joint_vel.astype(np.int64)), "state shape"),
    "nothing": (lambda s: replace(s, quaternion=None), "state shape"),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_one_invalid_state_is_ignored_and_three_in_a_row_mean_damping(name):
    change, counted = NONSENSE[name]
    runtime, _ = virtual_run(only_once(lambda state: [change(state)]), robot={"hz": 50.0})
    result = runtime.run()
    assert result.stop is None
    assert result.interventions == {counted: 1}

    fault = later(lambda state: [change(state)])
    result, _, robot = stopped(Reason.BAD_STATES, FAULT_S + 2 * PERIOD_S, fault, robot={"hz": 50.0})
    assert result.stop.detail.startswith(counted)
    assert all(np.isfinite(command.position).all() for _, command in robot.sent)


def test_a_state_from_the_future_does_not_hide_a_lost_robot():
    runtime, robot = virtual_run()
    controller, good = runtime.controller, replace(robot.measure(0, 990.0), received_s=0.0)
    controller.step(0, 0.0, good)
    controller.step(1, 0.02, replace(good, sequence=1, stamp_s=0.02, received_s=1e6))
    assert controller.interventions.counts() == {"state absurd": 1}
    controller.step(7, 0.14, None)
    assert controller.interventions.stop.reason is Reason.STATE_LOST


@pytest.mark.parametrize(("one", "other"), [("hip", "calf"), ("thigh", "calf"), ("hip", "thigh")])
def test_joints_that_are_swapped_during_the_run_mean_damping_at_once(one, other):
    first, second = (ROBOT_JOINTS.index(f"RR_{part}_joint") for part in (one, other))
    order = np.arange(12)
    order[[first, second]] = second, first
    swap = later(lambda state: reordered(state, order))
    stopped(Reason.BAD_STATES, FAULT_S + 2 * PERIOD_S, swap, robot={"hz": 50.0})


def test_the_policy_never_starts_with_joints_that_are_swapped_from_the_start():
    """The robot exchanges the names of hips and calves, and a hip's angle is impossible for a calf."""
    wrong = tuple(
        name.replace("hip", "x").replace("calf", "hip").replace("x", "calf") if name.startswith("RR") else name
        for name in ROBOT_JOINTS
    )
    runtime, robot = virtual_run(robot={"joints": wrong})
    as_measured = robot.pos.copy()
    hip, calf = wrong.index("RR_hip_joint"), wrong.index("RR_calf_joint")
    robot.pos[[hip, calf]] = as_measured[[calf, hip]]
    result = runtime.run()
    assert result.stop.reason is Reason.BAD_STATES
    assert all(is_damping(command) for _, command in robot.sent)


def other_leg(one: str, other: str) -> np.ndarray:
    """Return the order of the robot's joints with two legs exchanged."""
    swapped = {one: other, other: one}
    return np.array([ROBOT_JOINTS.index(swapped.get(name[:2], name[:2]) + name[2:]) for name in ROBOT_JOINTS])


@pytest.mark.parametrize(
    ("stride", "one", "other", "noticed"),
    [
        (0.5, "FL", "FR", True),
        (0.5, "RL", "RR", True),
        (0.5, "FL", "RL", True),
        (0.5, "FL", "RR", False),  # in a trot, these two have the same pose
        (0.0, "FL", "FR", False),  # in the default pose hips differ by 0.2 rad, and thighs front and rear
        (0.0, "FL", "RL", False),
    ],
)
def test_legs_that_are_swapped_during_the_run_are_noticed_only_where_their_poses_differ(stride, one, other, noticed):
    order = other_leg(one, other)
    trot = np.repeat([stride, -stride, -stride, stride], 3).astype(np.float32)  # FL, FR, RL, RR
    swap, options = later(lambda state: reordered(state, order)), {"policy": lambda obs: trot, "robot": {"hz": 50.0}}
    if noticed:
        result, _, _ = stopped(Reason.BAD_STATES, FAULT_S + 2 * PERIOD_S, swap, **options)
        assert result.stop.detail.startswith("state jumped")
    else:
        assert virtual_run(swap, **options)[0].run().stop is None


@pytest.mark.parametrize(("one", "other"), [("FL", "FR"), ("RL", "RR"), ("FL", "RL"), ("FL", "RR")])
def test_legs_that_are_swapped_from_the_start_are_not_noticed(one, other):
    """The legs are exchanged in measurements and commands alike, and each follows its commands.

    Neither ranges nor jumps nor the ramp can distinguish legs. So the first runs on a robot move each leg by hand
    (docs/a1.md).
    """
    order, policy = other_leg(one, other), SinePolicy()
    runtime, robot = virtual_run(lambda state, seconds: reordered(state, order), policy)
    send, pose = robot.send, robot.pos.copy()

    def wrongly_sent(command: Command) -> Command:
        sent = send(command)
        robot.command = replace(sent, position=sent.position[order], kp=sent.kp[order], kd=sent.kd[order])
        return sent

    robot.send = wrongly_sent
    result = runtime.run()
    assert result.stop is None
    assert result.interventions == {}
    assert policy.calls > 100
    assert not np.array_equal(robot.pos, pose)


def crossed(order: np.ndarray) -> tuple[Stop | None, int]:
    """Run with measurements in the right order and commands in another; return the stop and the policy's calls."""
    policy = SinePolicy()
    runtime, robot = virtual_run(policy=policy)
    send = robot.send

    def crossing(command: Command) -> Command:
        sent = send(command)
        robot.command = replace(sent, position=sent.position[order])
        return sent

    robot.send = crossing
    return runtime.run().stop, policy.calls


@pytest.mark.parametrize(("one", "other"), [("FL", "FR"), ("FL", "RL")])
def test_commands_that_reach_the_wrong_leg_are_not_noticed(one, other):
    """In the default pose legs are 0.2 rad apart, and the ramp allows for 0.5."""
    assert crossed(other_leg(one, other))[0] is None


def test_commands_that_reach_the_wrong_joints_are_found_by_the_ramp():
    order = np.arange(12)
    order[[3, 5]] = 5, 3  # hip and calf of one leg
    stop, calls = crossed(order)
    assert stop is not None
    assert calls == 3  # the warm-up's
