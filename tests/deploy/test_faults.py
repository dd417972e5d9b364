"""What goes wrong on a robot: each fault with the reaction and the time it takes, in virtual time."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from body_transformer.deploy.controller import Controller
from body_transformer.deploy.plan import Phase, RuntimeConfig
from body_transformer.deploy.robot import Command, State
from body_transformer.deploy.safety import Freshness, Reason, SafetyConfig

from .virtual_robot import DEFAULT_POSE, JOINTS, LYING, ROBOT_JOINTS, SinePolicy, a1_contract, is_damping, virtual_run

FAULT_S, PERIOD_S, STALE_S = 2.5, 0.02, 0.1  # the policy runs from 1.90 s to 4.90 s


def later(change):
    """A fault that begins at FAULT_S."""
    return lambda state, seconds: change(state) if seconds >= FAULT_S - 1e-9 else [state]


def only_once(change):
    return lambda state, seconds: change(state) if abs(seconds - FAULT_S) < 1e-9 else [state]


# -- the state does not come, or comes oddly ---------------------------------------------------------------------------


def test_a_state_that_stops_coming_means_damping_when_the_last_is_too_old():
    runtime, robot = virtual_run(later(lambda state: []))
    result = runtime.run()
    assert result.stop.reason is Reason.STATE_LOST
    assert FAULT_S - 0.005 + STALE_S <= robot.damped_s <= FAULT_S + STALE_S + PERIOD_S
    assert runtime.log.rows()["age_ms"][-1] > 100


def test_the_deadline_for_a_state_can_be_set():
    runtime, robot = virtual_run(later(lambda state: []), safety=SafetyConfig(stale_ms=40))
    assert runtime.run().stop.reason is Reason.STATE_LOST
    assert FAULT_S + 0.035 <= robot.damped_s <= FAULT_S + 0.04 + PERIOD_S


def test_a_state_that_never_comes_means_that_nothing_but_damping_is_sent():
    runtime, robot = virtual_run(lambda state, seconds: [], start_s=1.0)
    result = runtime.run()
    assert str(result.stop) == "no state: in 1 s"
    assert all(is_damping(command) for _, command in robot.sent)
    assert runtime.log.events[0].time_s == pytest.approx(1.0)


@pytest.mark.parametrize("wrong", [1, 5], ids=["the first", "the first five"])
def test_first_states_that_are_wrong_but_possible_move_nothing(wrong):
    """The motors' own controllers know better where they are: a target near the wrong pose is a kick."""

    def elsewhere(state: State, seconds: float) -> list[State]:
        moved = state.joint_pos + 0.4 * (state.sequence < wrong) * (-1.0) ** state.sequence
        return [replace(state, joint_pos=moved)]

    runtime, robot = virtual_run(elsewhere, pose=DEFAULT_POSE, robot={"hz": 50.0})
    pose = robot.pos.copy()
    runtime.run()
    for _, command in robot.sent[:50]:
        assert is_damping(command) or np.abs(command.position - pose).max() < 0.01


def test_states_that_keep_coming_but_ever_later_are_noticed():
    """One arrives in every tick, so nothing is missing; but each says what was true longer ago."""

    def slower(state: State, seconds: float) -> list[State]:
        delay = max(seconds - 2.0, 0) * 0.4
        return [replace(state, received_s=state.received_s + delay)]

    runtime, robot = virtual_run(slower)
    result = runtime.run()
    assert result.stop.reason is Reason.STATE_LOST
    rows = runtime.log.rows()
    assert (rows["state"][60:-12] > 0).all()
    # what was measured at t comes at t + 0.4 (t - 2): it is 100 ms old at 2.35 s
    assert 2.33 <= robot.damped_s <= 2.39
    assert result.interventions["state late"] > 3


def test_a_constant_latency_is_no_fault():
    runtime, _ = virtual_run(lambda state, seconds: [replace(state, received_s=state.received_s + 0.02)])
    result = runtime.run()
    assert result.stop is None
    assert result.interventions == {}


def test_a_sudden_latency_of_60_ms_is_counted_and_one_of_150_ms_is_too_much():
    runtime, _ = virtual_run(later(lambda state: [replace(state, received_s=state.received_s + 0.06)]))
    result = runtime.run()
    assert result.stop is None
    assert set(result.interventions) == {"state late"}
    runtime, robot = virtual_run(later(lambda state: [replace(state, received_s=state.received_s + 0.15)]))
    assert runtime.run().stop.reason is Reason.STATE_LOST
    assert robot.damped_s <= FAULT_S + STALE_S + PERIOD_S


def test_a_third_of_the_states_lost_is_no_fault():
    rng = np.random.default_rng(1)
    runtime, _ = virtual_run(lambda state, seconds: [state] if rng.random() > 0.33 else [])
    result = runtime.run()
    assert result.stop is None
    assert set(result.interventions) <= {"state late"}


def test_clocks_that_drift_apart_are_no_latency_and_latency_is_no_drift():
    for rate in (1 - 1e-4, 1 + 1e-4):
        fresh = Freshness(2e-4)
        for k in range(50 * 3600):
            fresh.came(k * 0.02 * rate, 5.0 + k * 0.02)
        assert abs(fresh.age_s(5.0 + k * 0.02)) < 1e-4
    fresh = Freshness(2e-4)
    for k in range(500):
        fresh.came(k * 0.02, 5.0 + k * 0.02 + 0.05 * (k >= 250))
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


def test_one_state_for_ever_is_a_lost_state():
    frozen: list[State] = []

    def freeze(state: State) -> list[State]:
        frozen.append(state)
        return [replace(frozen[0], received_s=state.received_s)]

    runtime, robot = virtual_run(later(freeze))
    result = runtime.run()
    assert result.stop.reason is Reason.STATE_LOST
    assert result.interventions["state duplicated"] >= 4
    assert robot.damped_s <= FAULT_S + STALE_S + PERIOD_S


def test_reordered_states_are_ignored_and_the_newest_stays():
    held: list[State] = []

    def swap(state: State) -> list[State]:
        """Each second one is overtaken by the next."""
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


def test_a_robot_that_starts_counting_anew_is_a_lost_one():
    runtime, robot = virtual_run(later(lambda state: [replace(state, sequence=state.sequence - 400)]))
    result = runtime.run()
    assert result.stop.reason is Reason.STATE_LOST
    assert robot.damped_s <= FAULT_S + STALE_S + PERIOD_S


# -- the state is nonsense ---------------------------------------------------------------------------------------------


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
def test_one_nonsensical_state_is_ignored_and_three_in_a_row_mean_damping(name):
    change, counted = NONSENSE[name]
    runtime, _ = virtual_run(only_once(lambda state: [change(state)]), robot={"hz": 50.0})
    result = runtime.run()
    assert result.stop is None
    assert result.interventions == {counted: 1}

    runtime, robot = virtual_run(later(lambda state: [change(state)]), robot={"hz": 50.0})
    result = runtime.run()
    assert result.stop.reason is Reason.BAD_STATES
    assert result.stop.detail.startswith(counted)
    assert robot.damped_s <= FAULT_S + 2 * PERIOD_S + 1e-6
    assert all(np.isfinite(command.position).all() for _, command in robot.sent)


def test_a_state_from_the_future_does_not_hide_that_the_robot_is_gone():
    runtime, _ = virtual_run()
    controller = runtime.controller
    good = State(
        0, 0.0, 0.0, *(np.array([dict(zip(JOINTS, LYING, strict=True))[n] for n in ROBOT_JOINTS]), *np.zeros((2, 12))),
        np.zeros(3), np.array([1.0, 0, 0, 0]),
    )  # fmt: skip
    controller.step(0, 0.0, good)
    controller.step(1, 0.02, replace(good, sequence=1, stamp_s=0.02, received_s=1e6))
    assert controller.interventions.counts() == {"state absurd": 1}
    controller.step(7, 0.14, None)
    assert controller.interventions.stop.reason is Reason.STATE_LOST


@pytest.mark.parametrize(("one", "other"), [("hip", "calf"), ("thigh", "calf"), ("hip", "thigh")])
def test_joints_that_change_places_on_the_way_mean_damping_at_once(one, other):
    first, second = (ROBOT_JOINTS.index(f"RR_{part}_joint") for part in (one, other))

    def swap(state: State) -> list[State]:
        order = np.arange(12)
        order[[first, second]] = second, first
        return [replace(state, joint_pos=state.joint_pos[order], joint_vel=state.joint_vel[order])]

    runtime, robot = virtual_run(later(swap), robot={"hz": 50.0})
    result = runtime.run()
    assert result.stop.reason is Reason.BAD_STATES
    assert robot.damped_s <= FAULT_S + 2 * PERIOD_S + 1e-6


def test_joints_that_are_wired_wrongly_from_the_start_do_not_get_a_policy():
    """The robot calls its hips calves: what it measures there is no calf's angle."""
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


def test_commands_that_reach_the_wrong_joints_are_found_by_the_ramp():
    policy = SinePolicy()
    runtime, robot = virtual_run(policy=policy)
    send = robot.send
    order = np.arange(12)
    order[[3, 5]] = 5, 3  # hip and calf of one leg

    def crossed(command):
        sent = send(command)
        robot.command = replace(sent, position=sent.position[order])
        return sent

    robot.send = crossed
    result = runtime.run()
    assert result.stop is not None
    assert policy.calls == 3  # the warm-up's


# -- start, tilt, policy -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("joint", "angle"), [("FL_hip_joint", 1.1), ("RR_calf_joint", -0.6), ("FR_thigh_joint", -1.3)])
def test_a_start_outside_the_limits_is_refused_and_only_damping_is_sent(joint, angle):
    pose = list(LYING)
    pose[JOINTS.index(joint)] = angle
    runtime, robot = virtual_run(pose=pose)
    result = runtime.run()
    assert result.stop.reason is Reason.BAD_START
    assert f"{joint} is at {angle} rad" in result.stop.detail
    assert robot.damped_s == 0.0
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
def test_a_robot_that_leans_too_far_is_damped_in_the_same_tick(axis, lean, stops):
    attitude = np.zeros(4)
    attitude[0], attitude[1 + axis] = math.cos(lean / 2), math.sin(lean / 2)
    runtime, robot = virtual_run(later(lambda state: [replace(state, quaternion=attitude)]))
    result = runtime.run()
    assert (result.stop is not None) == stops
    if stops:
        assert result.stop.reason is Reason.TILTED
        assert robot.damped_s <= FAULT_S + PERIOD_S


def test_a_robot_that_lies_on_its_back_does_not_start():
    runtime, robot = virtual_run()
    robot.quaternion = np.array([0.0, 1.0, 0.0, 0.0])
    assert runtime.run().stop.reason is Reason.TILTED
    assert all(is_damping(command) for _, command in robot.sent)


class SlowPolicy(SinePolicy):
    """Slow from one call on, for some calls."""

    def __init__(self, slow_s: float, first: int = 30, calls: int = 10**9) -> None:
        super().__init__()
        self.slow_s, self.slow_calls = slow_s, range(first, first + calls)

    def __call__(self, obs):
        self.takes_s = self.slow_s if self.calls in self.slow_calls else 0.001
        return super().__call__(obs)


def test_a_policy_that_becomes_slower_than_the_period_means_damping_after_five_misses():
    runtime, robot = virtual_run(policy=SlowPolicy(0.025))
    result = runtime.run()
    assert result.stop.reason is Reason.LATE_LOOP
    slow_from = 1.90 + 27 * PERIOD_S
    # ticks begin at 0, 25, 50, 75 ms …; each leaves after its deadline, and 100 ms is the fifth's time
    assert slow_from + 4 * PERIOD_S <= robot.damped_s <= slow_from + 6 * PERIOD_S
    assert result.interventions["missed deadline"] >= 5
    assert result.missed == result.interventions["missed deadline"]


def test_one_slow_step_is_counted_and_the_next_ticks_are_where_they_would_have_been():
    runtime, _robot = virtual_run(policy=SlowPolicy(0.033, calls=1))
    result = runtime.run()
    assert result.stop is None
    assert result.interventions == {"missed deadline": 1}
    late = runtime.log.rows()["late_ms"]
    assert (late > 0.1).sum() == 1
    assert late.max() == pytest.approx(13)


def test_ticks_that_were_missed_altogether_are_left_out_and_not_made_up_for():
    runtime, _robot = virtual_run(policy=SlowPolicy(0.071, calls=1))
    result = runtime.run()
    assert result.stop is None
    assert result.interventions["missed deadline"] == 3
    ticks = runtime.log.rows()["tick"]
    assert sorted(set(range(ticks[-1])) - set(ticks.tolist())) == list(range(ticks[0] + 123, ticks[0] + 125))


def test_a_policy_that_hangs_for_a_while_means_damping_as_soon_as_it_returns():
    runtime, robot = virtual_run(policy=SlowPolicy(0.5, calls=1))
    result = runtime.run()
    assert result.stop.reason is Reason.LATE_LOOP
    assert robot.damped_s <= 1.90 + 27 * PERIOD_S + 0.5 + PERIOD_S


def test_a_loop_that_stutters_is_stopped_too():
    class Stutter(SinePolicy):
        def __call__(self, obs):
            self.takes_s = 0.025 if self.calls > 30 and self.calls % 3 == 0 else 0.001
            return super().__call__(obs)

    runtime, _robot = virtual_run(policy=Stutter())
    result = runtime.run()
    assert result.stop.reason is Reason.LATE_LOOP
    assert 5 < result.interventions["missed deadline"] < 10


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

    runtime, robot = virtual_run(policy=policy)
    result = runtime.run()
    assert result.stop.reason is Reason.BAD_ACTION
    assert robot.damped_s == pytest.approx(1.90 + 27 * PERIOD_S)


def test_an_action_beyond_the_clip_is_clipped_and_counted():
    runtime, _robot = virtual_run(policy=lambda obs: np.full(12, 3.0, np.float32))
    result = runtime.run()
    assert result.stop is None
    assert result.interventions["action clipped"] == 150
    assert runtime.log.rows()["action"].max() == 1.0


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
def test_a_robot_that_tells_why_it_tripped_is_quoted(kind):
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
    runtime, robot = virtual_run(later(lambda state: []), damping_s=2.0)
    robot.fault = lambda state, seconds: (
        [] if FAULT_S <= seconds < 3.0 else [replace(state, quaternion=np.array([0.0, 1.0, 0, 0]))]
        if seconds >= 3.0 else [state]
    )  # fmt: skip
    result = runtime.run()
    assert result.stop.reason is Reason.STATE_LOST
    assert robot.damped_s <= FAULT_S + STALE_S + PERIOD_S
    assert robot.sent[-1][0] >= 4.5


# -- anything at all ---------------------------------------------------------------------------------------------------

CONTRACT = a1_contract()
LOW, HIGH = np.array(CONTRACT.control.position_limits).T
anything = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-3, 3)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_whatever_states_and_actions_come_the_command_is_finite_and_within_all_limits(data):
    """Mostly plausible states, so that a run gets somewhere, with anything in between."""
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
