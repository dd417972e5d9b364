"""Reward terms of a1-command on states made by hand."""

import math

import pytest

pytest.importorskip("mjlab")

from body_transformer.rl.a1 import terms

from ..environments import turned
from .states import make_state


def state(**values):
    return make_state(**{"command": (0.5, 0.0, 0.0)} | values)


def test_the_error_of_the_heading_takes_the_shorter_way():
    one = state(quat=turned("z", 3.0), wanted_heading=-3.0)
    assert terms.heading_error(one).item() == pytest.approx(6.0 - 2 * math.pi, abs=1e-5)
    assert terms.off_heading(one).item() == pytest.approx(2 * math.pi - 6.0, abs=1e-5)
    assert terms.off_heading(state(quat=turned("z", 2.0))).item() == 1.0


def test_motions_other_than_the_commanded_ones_are_punished_by_their_squares():
    one = state(vel=(0.0, 0.0, 0.3), spin=(0.5, 1.0, 9.0))
    assert terms.bouncing(one).item() == pytest.approx(0.09)
    assert terms.rocking(one).item() == pytest.approx(1.25)
    assert terms.tilting(state(quat=turned("y", 0.3))).item() == pytest.approx(math.sin(0.3) ** 2)


def test_changes_of_actions_are_summed_over_the_joints():
    one = state(action=(1.0,) * 12, previous_action=(0.5,) * 12, older_action=(0.5,) * 12)
    assert terms.action_rate(one).item() == pytest.approx(12 * 0.25)
    assert terms.action_bend(one).item() == pytest.approx(12 * 0.25)


def test_feet_in_the_air_are_to_be_high_where_they_are_fast_and_feet_on_the_ground_still():
    feet = {"foot_speed": (1.0, 2.0, 0.5, 0.0), "on_ground": (False, True, False, True)}
    one = state(**feet, foot_height=(0.06, 0.0, 0.02, 0.0), stayed=(False, True, False, True))
    assert terms.dragging(one).item() == pytest.approx(0.04 * 0.5)
    assert terms.slipping(one).item() == pytest.approx(4.0)
    assert terms.dragging(state(**feet, foot_height=(0.0,) * 4, command=(0.0,) * 3)).item() == 0.0


def legs(left: tuple[float, float, float], right: tuple[float, float, float]) -> tuple[float, ...]:
    """Return angles of both ends of the robot."""
    return (*left, *right) * 2


def test_mirrored_legs_are_symmetric_and_others_are_not():
    mean = legs((0.1, 0.8, -1.5), (-0.1, 0.8, -1.5))
    even = tuple(angle**2 + 0.04 for angle in mean)
    assert terms.asymmetry(state(joint_mean=mean, joint_square=even)).item() == pytest.approx(0.0, abs=1e-5)
    skewed = legs((0.1, 0.8, -1.5), (-0.3, 0.7, -1.5))
    squares = tuple(angle**2 + 0.04 for angle in skewed)
    assert terms.asymmetry(state(joint_mean=skewed, joint_square=squares)).item() == pytest.approx(0.6, abs=1e-4)
    limping = tuple(angle**2 + (0.04 if k % 6 < 3 else 0.01) for k, angle in enumerate(mean))
    one = state(joint_mean=mean, joint_square=limping)
    assert terms.asymmetry(one).item() == pytest.approx(6 * 0.1, abs=1e-4)
    turning = state(joint_mean=mean, joint_square=limping, command=(0.5, 0.0, 0.8))
    assert terms.asymmetry(turning).item() == 0.0


def test_a_robot_that_is_to_stand_keeps_its_pose():
    assert terms.fidgeting(state()).item() == 0.0
    assert terms.fidgeting(state(command=(0.0, 0.0, 0.0))).item() > 1.0
