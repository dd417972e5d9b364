"""Faults of a robot other than in its states: reaction and reaction time, in virtual time."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from body_transformer.deploy.controller import Controller
from body_transformer.deploy.robot import Command, State
from body_transformer.deploy.runtime_config import Phase, RuntimeConfig
from body_transformer.deploy.safety import Reason, SafetyConfig

from .virtual_robot import (
    FAULT_S,
    JOINTS,
    LOST_S,
    LYING,
    PERIOD_S,
    SinePolicy,
    a1_contract,
    is_damping,
    later,
    stopped,
    virtual_run,
)

# -- start, tilt, policy -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("joint", "angle"), [("FL_hip_joint", 1.1), ("RR_calf_joint", -0.6), ("FR_thigh_joint", -1.3)])
def test_a_start_outside_the_limits_is_refused_and_only_damping_is_sent(joint, angle):
    pose = list(LYING)
    pose[JOINTS.index(joint)] = angle
    result, _, robot = stopped(Reason.BAD_START, 0.0, pose=pose)
    assert f"{joint} is at {angle} rad" in result.stop.detail
    assert all(is_damping(command) for _, command in robot.sent)
    assert len(robot.sent) >= 10


def test_a_robot_that_rests_on_its_mechanical_stops_may_start():
    pose = [-2.75 if "calf" in name else angle for name, angle in zip(JOINTS, LYING, strict=True)]
    runtime, robot = virtual_run(pose=pose)
    result = runtime.run()
    assert result.stop is None
    assert min(command.position.min() for _, command in robot.sent) >= -2.7


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("lean", "stops"), [(0.9, False), (1.1, True), (-1.1, True), (math.pi, True)])
def test_a_robot_that_tilts_too_far_is_damped_in_the_same_tick(axis, lean, stops):
    attitude = np.zeros(4)
    attitude[0], attitude[1 + axis] = math.cos(lean / 2), math.sin(lean / 2)
    fault = later(lambda state: [replace(state, quaternion=attitude)])
    if stops:
        stopped(Reason.TILTED, FAULT_S + PERIOD_S, fault)
    else:
        assert virtual_run(fault)[0].run().stop is None


def test_a_robot_that_lies_on_its_back_does_not_start():
    runtime, robot = virtual_run()
    robot.quaternion = np.array([0.0, 1.0, 0.0, 0.0])
    assert runtime.run().stop.reason is Reason.TILTED
    assert all(is_damping(command) for _, command in robot.sent)


class SlowPolicy(SinePolicy):
    """A policy that is slow for some calls, from one call on."""

    def __init__(self, slow_s: float, first: int = 30, calls: int = 10**9) -> None:
        super().__init__()
        self.slow_s, self.slow_calls = slow_s, range(first, first + calls)

    def __call__(self, obs):
        self.takes_s = self.slow_s if self.calls in self.slow_calls else 0.001
        return super().__call__(obs)


def test_a_policy_that_becomes_slower_than_the_period_means_damping_after_five_misses():
    slow_from = 1.90 + 27 * PERIOD_S
    result, _, robot = stopped(Reason.LATE_LOOP, slow_from + 6 * PERIOD_S, policy=SlowPolicy(0.025))
    # ticks begin at 0, 25, 50, 75 ms …; each leaves after its deadline, and 100 ms is the fifth's time
    assert robot.damped_s >= slow_from + 4 * PERIOD_S
    assert result.interventions["missed deadline"] >= 5
    assert result.missed == result.interventions["missed deadline"]


def test_one_slow_step_is_counted_and_does_not_move_the_next_ticks():
    runtime, _robot = virtual_run(policy=SlowPolicy(0.033, calls=1))
    result = runtime.run()
    assert result.stop is None
    assert result.interventions == {"missed deadline": 1}
    late = runtime.log.rows()["late_ms"]
    assert (late > 0.1).sum() == 1
    assert late.max() == pytest.approx(13)


def test_ticks_that_were_missed_entirely_are_skipped_and_not_made_up_for():
    runtime, _robot = virtual_run(policy=SlowPolicy(0.071, calls=1))
    result = runtime.run()
    assert result.stop is None
    assert result.interventions["missed deadline"] == 3
    ticks = runtime.log.rows()["tick"]
    assert sorted(set(range(ticks[-1])) - set(ticks.tolist())) == list(range(ticks[0] + 123, ticks[0] + 125))


def test_a_policy_that_hangs_for_a_while_means_damping_as_soon_as_it_returns():
    stopped(Reason.LATE_LOOP, 1.90 + 27 * PERIOD_S + 0.5 + PERIOD_S, policy=SlowPolicy(0.5, calls=1))


def test_a_loop_that_stutters_is_stopped_too():
    class Stutter(SinePolicy):
        def __call__(self, obs):
            self.takes_s = 0.025 if self.calls > 30 and self.calls % 3 == 0 else 0.001
            return super().__call__(obs)

    result, _, _ = stopped(Reason.LATE_LOOP, math.inf, policy=Stutter())
    assert 5 < result.interventions["missed deadline"] < 10


@pytest.mark.parametrize(
    ("hz", "allowed"), [(5.0, 1), (25.0, 3), (50.0, 5), (70.0, 7), (100.0, 10), (200.0, 20), (1000.0, 100)]
)
def test_missed_deadlines_are_allowed_for_100_ms_at_every_rate(hz, allowed):
    assert SafetyConfig().missed_allowed(hz) == allowed
    assert SafetyConfig(max_missed=3).missed_allowed(hz) == 3


@pytest.mark.parametrize("loop_hz", [50.0, 100.0, 400.0])
def test_a_loop_that_stands_still_for_100_ms_ends_the_run_at_every_rate(loop_hz):
    def late_by(seconds):
        class Slow(SinePolicy):
            def __call__(self, obs):
                if self.calls == 40:
                    self.time.now_s += seconds
                return super().__call__(obs)

        stop = virtual_run(policy=Slow(), loop_hz=loop_hz, safety=SafetyConfig(stale_ms=1000.0))[0].run().stop
        return None if stop is None else stop.reason

    assert late_by(0.1 + 0.5 / loop_hz) is Reason.LATE_LOOP
    assert late_by(0.1 - 1.5 / loop_hz) is None


ACTIONS = {
    "NaN": np.array([*[0.0] * 11, np.nan], np.float32),
    "infinite": np.full(12, -np.inf, np.float32),
    "huge": np.full(12, 1e6, np.float32),
    "short": np.zeros(11, np.float32),
    "empty": np.zeros(0, np.float32),
    "integers": np.zeros(12, np.int64),
    "text": np.array(["a"] * 12),
    "none": None,
}


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_that_cannot_be_used_means_damping_in_the_same_tick(name):
    calls = []

    def policy(obs):
        calls.append(None)
        return ACTIONS[name] if len(calls) > 30 else np.zeros(12, np.float32)

    _, _, robot = stopped(Reason.BAD_ACTION, 2.44, policy=policy)
    assert robot.damped_s == pytest.approx(1.90 + 27 * PERIOD_S)


def test_a_robot_whose_own_protection_trips_is_left_in_damping():
    runtime, robot = virtual_run()
    send = robot.send
    robot.send = lambda command: send(command if len(robot.sent) < 125 else Command.damping(12, 5.0))
    result = runtime.run()
    assert str(result.stop) == "robot tripped"
    assert robot.damped_s == pytest.approx(FAULT_S)
    assert runtime.log.events[-3].kind == "stop"
    assert runtime.log.rows()["phase"][126] == Phase.DAMPING


@pytest.mark.parametrize("kind", ["position", "torque"])
def test_the_reason_of_a_robots_own_trip_is_quoted(kind):
    runtime, robot = virtual_run(contract=a1_contract(kind=kind))
    send, robot.tripped = robot.send, ""

    def trip(command):
        robot.tripped = "" if len(robot.sent) < 125 else "PowerProtect at level 1"
        return send(Command.damping(12, 5.0) if robot.tripped else command)

    robot.send = trip
    assert str(runtime.run().stop) == "robot tripped: PowerProtect at level 1"
    assert robot.damped_s == pytest.approx(FAULT_S)


def test_one_motor_that_lost_its_gain_means_damping_for_all():
    runtime, robot = virtual_run()
    send = robot.send

    def weaken(command):
        gain = np.where(np.arange(12) == 7, 0.0, command.kp)
        return send(command if len(robot.sent) < 125 else replace(command, kp=gain))

    robot.send = weaken
    assert str(runtime.run().stop) == "robot tripped"
    assert robot.damped_s == pytest.approx(FAULT_S + PERIOD_S)


def test_the_first_stop_stays_whatever_comes_after_it():
    def lost_then_tilted(state, seconds):
        if seconds < FAULT_S:
            return [state]
        return [] if seconds < 3.0 else [replace(state, quaternion=np.array([0.0, 1.0, 0.0, 0.0]))]

    _, _, robot = stopped(Reason.STATE_LOST, LOST_S, lost_then_tilted, damping_s=2.0)
    assert robot.sent[-1][0] >= 4.5


# -- any input ---------------------------------------------------------------------------------------------------------

CONTRACT = a1_contract()
LOW, HIGH = np.array(CONTRACT.control.position_limits).T
anything = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-3, 3)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_states_and_actions_come_the_command_is_finite_and_within_all_limits(data):
    """Most states are plausible, so that the run gets beyond the start; any value may come in between."""
    seed = data.draw(st.integers(0, 2**32 - 1))
    strange = data.draw(st.floats(0, 0.5))
    rng = np.random.default_rng(seed)
    specials = np.array([data.draw(anything) for _ in range(6)])

    def spoil(array: np.ndarray, chance: float) -> np.ndarray:
        mask = rng.random(array.shape) < chance
        return np.where(mask, rng.choice(specials, array.shape), array)

    def policy(obs):
        action = rng.normal(size=12) * 10 ** rng.uniform(-2, 1.5)
        return spoil(action, 0.01 * (rng.random() < strange)).astype(np.float32)

    config = RuntimeConfig(seconds=0.5, ramp_s=0.04, ramp_speed=20.0, hold_s=0.02, damping_s=0.1)
    safety = SafetyConfig(max_bad_states=10**6, reached_rad=100.0, jump_rad=100.0, max_action=1e9)
    controller = Controller(CONTRACT, policy, JOINTS, config, safety)
    pos, before = np.array(LYING), None
    for tick in range(60):
        now = tick * PERIOD_S
        pos = np.clip(pos + rng.normal(size=12) * 0.2, LOW - 0.05, HIGH + 0.05)
        chance = 0.2 * (rng.random() < strange)
        state = State(
            tick if rng.random() > chance else int(rng.integers(0, 100)),
            *spoil(np.array([now, now]), chance).tolist(),
            spoil(pos, chance),
            spoil(rng.normal(size=12) * 10, chance),
            spoil(np.zeros(12), chance),
            spoil(rng.normal(size=3), chance),
            spoil(np.array([1.0, 0.1, 0.1, 0.0]), chance),
        )
        with np.errstate(over="ignore", invalid="ignore"):
            command = controller.step(tick, now, state if rng.random() > 0.1 else None)
        measured = controller.measured
        for part in (command.position, command.velocity, command.kp, command.kd, command.torque):
            assert np.isfinite(part).all()
        torque = command.torque + command.kp * (command.position - measured.joint_pos)
        torque -= command.kd * measured.joint_vel
        assert (np.abs(torque) <= 33.5 * (1 + 1e-6)).all()
        if command.kp.any():
            assert ((command.position >= LOW) & (command.position <= HIGH)).all()
            if before is not None:
                assert (np.abs(command.position - before) <= 21 * PERIOD_S + 1e-9).all()
            before = command.position.copy()
