"""Terms of hand-made states, compared with numbers computed by hand."""

import math
from functools import partial

import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer.rl.envs.cpu import scene_model
from body_transformer.rl.humanoid import mod, terms
from body_transformer.rl.humanoid.model import BODIES, JOINTS
from body_transformer.rl.humanoid.robots import HumanoidJoints, HumanoidState

from ..environments import free_body, task_cfg, turned

JOINT_VALUES = HumanoidJoints.of(scene_model(task_cfg("humanoid-mod")))


def state(**changes) -> HumanoidState:
    """Return the state of one robot upright at the origin, at rest, without contacts, except for the changes."""
    values = {
        "pos": [0, 0, 1.34],
        "joint_pos": [0] * 21,
        "joint_vel": [0] * 21,
        "contact_force": [[0, 0, 0]] * 16,
        "action": [0] * 21,
        "previous_xy": [0, 0],
    }
    root, tensors = free_body(torch.float32, values | changes)
    return HumanoidState(root, **tensors, joints=JOINT_VALUES)


def observe(state: HumanoidState) -> torch.Tensor:
    """[1, 100]"""
    return torch.cat([term.value(state) for term in mod.task().obs["actor"]], -1)


def joint_values(**values) -> list[float]:
    return [values.get(name, 0.0) for name in JOINTS]


def forces(**values) -> list[tuple[float, float, float]]:
    return [values.get(name, (0.0, 0.0, 0.0)) for name in BODIES]


# -- observation -------------------------------------------------------------------------------------------------------


def test_a_torso_that_points_straight_down_gives_no_nan():
    down = [math.sqrt(0.5), 0, math.sqrt(0.5) * 1.0001, 0]  # a little more than a unit quaternion
    angles = terms.torso_roll_pitch_yaw(state(quat=down))[0]
    assert angles[1].item() == pytest.approx(math.pi / 2, abs=2e-3)
    assert angles.isfinite().all()


def test_the_observation_has_its_hundred_entries_in_the_papers_order():
    seen = observe(
        state(
            pos=[7, 8, 1.5],
            vel=[1, 2, 3],
            quat=turned("z", 0.4),
            spin=[0, 0, 6],
            joint_vel=joint_values(abdomen_z=10, left_elbow=-20),
            contact_force=forces(torso=(1, 2, 3), right_foot=(-4, 5, 600), left_hand=(7, 8, 9)),
        )
    )[0].tolist()
    assert len(seen) == 100
    assert seen[:10] == pytest.approx([1.5, 1, 2, 3, 0, 0, 0.4, 0, 0, 6], abs=1e-6)
    assert seen[10 + JOINTS.index("abdomen_y")] == pytest.approx(22.5 / 52.5, abs=1e-6)
    assert seen[31] == pytest.approx(1.0)
    assert seen[51] == pytest.approx(-2.0)
    assert seen[52:55] == [1, 2, 3]
    assert seen[52 + 3 * 6 : 52 + 3 * 7] == [-4, 5, 600]
    assert seen[97:] == [7, 8, 9]


def test_joint_velocities_and_actions_have_the_order_of_joint_positions():
    owners = {term.name: term.owners for term in mod.task().obs["actor"]}
    assert owners["joint_pos"].of == owners["joint_vel"].of == mod.task().actions.of == JOINTS


# -- reward ------------------------------------------------------------------------------------------------------------

AHEAD = (1000.0, 0.0)


@pytest.mark.parametrize(
    ("before", "now", "target", "speed"),
    [
        ((0, 0), (0.05, 0), AHEAD, 3.0),
        ((0, 0), (-0.05, 0), AHEAD, -3.0),
        ((0, 0), (0, 1), AHEAD, -0.0005 * 60),  # sqrt(1000^2 + 1) = 1000.0005
        ((80.0, 0), (80.001, 0), AHEAD, 0.06),
        ((0.3, 0.4), (0, 0), (0.0, 0.0), 30.0),
        ((0, 0), (0, 0), (0.0, 0.0), 0.0),
        ((0, 0), (0.03, 0.04), (0.0, 0.0), -3.0),
    ],
    ids=["ahead", "back", "aside", "a millimetre far out", "to the origin", "at the origin", "off the origin"],
)
def test_progress_is_the_speed_towards_the_target(before, now, target, speed):
    got = terms.progress(state(previous_xy=before, pos=[*now, 1.0]), target)
    assert got.item() == pytest.approx(speed, abs=1e-3)


@pytest.mark.parametrize(("angle", "expected"), [(0, 1), (21.5, 1), (21.7, 0), (180, 0)])
def test_upright_is_within_about_22_degrees(angle, expected):
    assert terms.upright(state(quat=turned("x", math.radians(angle)))).item() == expected
    assert terms.upright(state(quat=turned("y", -math.radians(angle)))).item() == expected


@pytest.mark.parametrize(
    ("yaw", "expected"), [(0, 1.0), (36, 1.0), (60, 0.5 / 0.8), (-60, 0.5 / 0.8), (90, 0.0), (180, -1.25)]
)
def test_heading_counts_the_cosine_up_to_0_8(yaw, expected):
    facing = state(quat=turned("z", math.radians(yaw)))
    assert terms.heading(facing, partial(terms.to_target, target=AHEAD)).item() == pytest.approx(expected, abs=1e-5)
    assert terms.heading(facing, terms.straight_ahead).item() == pytest.approx(expected, abs=1e-5)


def test_heading_is_towards_the_target_from_where_the_robot_is():
    beside = state(pos=[1000, -5, 1.3], quat=turned("z", math.pi / 2))
    assert terms.heading(beside, partial(terms.to_target, target=AHEAD)).item() == 1.0
    assert terms.heading(beside, terms.straight_ahead).item() == pytest.approx(0.0, abs=1e-6)


def test_energy_counts_strong_motors_more():
    # hip_y gear 135: 1 x 1 x 1; knee gear 90: 0.5 x 0.4 x 90/135
    moving = state(
        action=joint_values(left_hip_y=1.0, right_knee=-0.5, left_elbow=1.0),
        joint_vel=joint_values(left_hip_y=-10.0, right_knee=4.0, head=9.0),
    )
    assert terms.energy(moving).item() == pytest.approx(1 + 0.5 * 0.4 * 90 / 135, abs=1e-5)


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [
        (45.0, 1.0),  # the end of hip_y's range -120..45: middle -37.5, half 82.5
        (-37.5 + 0.99 * 82.5, 0.5),
        (-37.5 - 0.99 * 82.5, 0.5),
        (-37.5 + 0.97 * 82.5, 0.0),
        (-37.5 + 1.01 * 82.5, 1.5),
    ],
)
def test_joints_near_their_limits_are_penalised(degrees, expected):
    pose = [0.0] * 21
    pose[JOINTS.index("right_hip_y")] = math.radians(degrees)
    pose[JOINTS.index("right_knee")] = pose[JOINTS.index("left_knee")] = -0.5  # 0 is at 0.975 of the knee's range
    assert terms.limits(state(joint_pos=pose)).item() == pytest.approx(expected, abs=1e-3)


# -- termination -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("felt", "expected"),
    [
        ({}, False),
        ({"right_foot": (300.0, 0.0, 900.0), "left_foot": (0.0, 0.0, 900.0)}, False),
        ({"left_hand": (0.0, 0.0, 1.1)}, True),
        ({"right_thigh": (0.0, -0.9, 0.0)}, False),
        ({"right_thigh": (0.8, -0.8, 0.0)}, True),
        ({"torso": (0.0, 0.0, 0.6), "head": (0.0, 0.0, 0.6)}, False),
    ],
)
def test_more_than_a_newton_on_a_body_other_than_a_foot_is_a_fall(felt, expected):
    assert terms.fallen(state(contact_force=forces(**felt))).item() is expected
