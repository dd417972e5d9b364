"""Whatever is asked for and measured: what leaves is finite and within all limits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from body_transformer.deploy.limits import Limiter
from body_transformer.deploy.robot import DAMPING_KD
from body_transformer.deploy.safety import Interventions, Reason, SafetyConfig

from .virtual_robot import DEFAULT_POSE, a1_contract

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


def test_a_harmless_target_leaves_as_it_is():
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


def test_a_joint_that_is_too_quick_is_braked_and_not_driven():
    made = limiter()
    vel = STILL.copy()
    vel[4] = 25.0
    made.hold_position(moved(4, 0.3), POSE, vel)
    assert pd_torque(made, POSE, vel)[4] <= 0
    assert Reason.VELOCITY_LIMIT in reasons(made)
    made.hold_position(moved(4, -0.3), POSE, vel)
    assert pd_torque(made, POSE, vel)[4] < 0


def test_where_no_target_satisfies_all_limits_the_gains_give_way():
    made = limiter(SafetyConfig(step_rad=0.01))
    carried = moved(1, 2.0)  # someone moved the leg: at full stiffness the old target asks for 200 Nm
    made.hold_position(POSE, carried, STILL)
    assert abs(made.position[1] - POSE[1]) <= 0.01 + 1e-12
    assert pd_torque(made, carried, STILL)[1] == pytest.approx(-TORQUE)
    assert 0 < made.kp[1] < 100
    assert (np.delete(made.kp, 1) == 100).all()
    assert Reason.GAIN_REDUCED in reasons(made)


def test_less_torque_can_be_asked_for():
    made = limiter(SafetyConfig(torque_fraction=0.5))
    made.hold_position(moved(1, 0.4), POSE, STILL)
    assert pd_torque(made, POSE, STILL)[1] == pytest.approx(TORQUE / 2)


def test_damping_is_weaker_for_a_joint_so_quick_that_it_would_ask_for_too_much_torque():
    made = limiter()
    vel = STILL.copy()
    vel[0] = 20.0
    made.damp(vel)
    assert made.kd[0] * 20 == pytest.approx(TORQUE)
    assert (made.kd[1:] == DAMPING_KD).all()
    assert not made.kp.any()
    assert not made.torque.any()


TORQUE_CONTROL = a1_contract(kind="torque", offset=(0.0,) * 12, scale=(20.0,) * 12).control


def test_a_torque_command_has_its_limits_too():
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
def test_whatever_comes_the_position_command_is_within_all_limits(config, ticks):
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
        too_quick = np.abs(vel) > VELOCITY
        assert (torque[too_quick] * np.sign(vel[too_quick]) <= 1e-6).all()
        assert (made.kp >= 0).all()
        assert (made.kp <= 100).all()
        assert (made.kd >= 0).all()
        before = made.position.copy()
        made.damp(vel)
        assert (np.abs(made.kd * vel) <= TORQUE * config.torque_fraction * (1 + 1e-9)).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_wild_ticks_stay_within_all_limits(seed):
    rng = np.random.default_rng(seed)
    made, before = limiter(), POSE.copy()
    for _ in range(1000):
        target = rng.normal(size=12) * 10 ** rng.uniform(-3, 8)
        pos, vel = rng.uniform(-4, 4, 12), rng.uniform(-40, 40, 12)
        made.hold_position(target, pos, vel)
        assert (np.abs(pd_torque(made, pos, vel)) <= TORQUE * (1 + 1e-6)).all()
        assert ((made.position >= LOW) & (made.position <= HIGH)).all()
        assert (np.abs(made.position - before) <= VELOCITY * PERIOD + 1e-9).all()
        before = made.position.copy()


@settings(max_examples=40, deadline=None)
@given(configs, st.lists(st.tuples(wild, measured_pos, measured_vel), min_size=1, max_size=3))
def test_whatever_comes_the_torque_command_is_within_all_limits(config, ticks):
    made = limiter(config, TORQUE_CONTROL)
    for torque, pos, vel in ticks:
        made.push(torque, pos, vel)
        assert np.isfinite(made.torque).all()
        assert (np.abs(made.torque) <= TORQUE * config.torque_fraction).all()
        assert (made.torque[(pos >= HIGH) | (vel > VELOCITY)] <= 0).all()
        assert (made.torque[(pos <= LOW) | (vel < -VELOCITY)] >= 0).all()
