"""Observation, reward and termination of a1-walk on states made by hand."""

import math
from dataclasses import replace

import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer.rl.a1 import terms, walk
from body_transformer.rl.a1.model import DEFAULT_POSE
from body_transformer.rl.a1.state import A1State

from ..environments import turned
from .states import TASK, make_state, observe


def state(**values) -> A1State:
    """Return the state of one level robot at rest with the command 0.5 m/s ahead, except for the values."""
    return make_state(**{"command": (0.5, 0.0, 0.0)} | values)


# -- observation -------------------------------------------------------------------------------------------------------


def test_every_entry_is_in_its_place_and_scaled():
    one = state(
        vel=(1.0, 2.0, 3.0),
        spin=(4.0, 8.0, 12.0),
        command=(0.5, 0.25, 2.0),
        joint_pos=tuple(angle + 0.1 * k for k, angle in enumerate(DEFAULT_POSE)),
        joint_vel=tuple(20.0 * k for k in range(12)),
        action=tuple(float(k) for k in range(12)),
    )
    seen = observe(one, "critic")[0, :48]
    expected = [2.0, 4.0, 6.0, 1.0, 2.0, 3.0, 0.0, 0.0, -1.0, 1.0, 0.5, 0.5]
    expected += [0.1 * k for k in range(12)] + [float(k) for k in range(12)] * 2
    torch.testing.assert_close(seen, torch.tensor(expected))
    assert sum(term.owners.size for term in TASK.obs["actor"]) == len(expected) == 48


def test_the_observed_velocity_is_in_the_trunks_frame():
    one = state(quat=turned("z", math.pi / 2), vel=(0.0, 1.0, 0.0))  # it faces along y and moves along y
    torch.testing.assert_close(terms.base_linear_velocity(one)[0], torch.tensor([2.0, 0.0, 0.0]))


# -- reward ------------------------------------------------------------------------------------------------------------


def test_tracking_is_in_the_trunks_frame_and_world_velocity_in_the_worlds():
    sideways = state(quat=turned("z", math.pi / 2), vel=(0.0, 0.5, 0.0))
    assert terms.tracking(sideways).item() == pytest.approx(1.0)
    assert terms.world_velocity(sideways).item() == pytest.approx(math.hypot(0.5, 0.5))
    slow = state(vel=(0.2, 0.4, 9.0))
    assert terms.tracking(slow).item() == pytest.approx(math.exp(-(0.3**2 + 0.4**2) / 0.5))
    assert terms.world_velocity(slow).item() == pytest.approx(0.5)


def test_a_foot_that_lands_is_rewarded_for_its_time_in_the_air_beyond_half_a_second():
    landed = state(landed=(True, False, True, False), flight=(0.8, 9.0, 0.3, 0.0))
    assert terms.air_time(landed).item() == pytest.approx(0.3 - 0.2)
    assert terms.air_time(replace(landed, command=torch.tensor([[0.05, 0.0, 1.0]]))).item() == 0


def test_the_option_turning_changes_only_the_weight_of_that_reward():
    more = walk.task(TASK.terrain, walk.WalkOptions(turning=20.0))
    assert {name: term.value for name, term in more.rewards.items()} == {
        name: term.value for name, term in TASK.rewards.items()
    }
    changed = {name: term.weight for name, term in more.rewards.items() if term.weight != TASK.rewards[name].weight}
    assert changed == {"turning": 20.0}


# -- termination -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "falls"),
    [
        ({}, False),
        ({"base_force": 0.9}, False),
        ({"base_force": 1.1}, True),
        ({"quat": turned("x", 0.79)}, False),
        ({"quat": turned("x", -0.81)}, True),
        ({"quat": turned("y", 1.5)}, False),
        ({"quat": turned("z", 2.0)}, False),
        ({"pos": (0.0, 0.0, 0.149)}, True),
        ({"pos": (0.0, 0.0, 1.51)}, True),
    ],
)
def test_a_robot_whose_trunk_touches_the_ground_rolls_over_or_leaves_its_heights_has_fallen(values, falls):
    assert terms.fallen(state(**{"pos": (0.0, 0.0, 0.3)} | values)).item() is falls
