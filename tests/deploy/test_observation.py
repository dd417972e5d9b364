import math
from dataclasses import replace

import numpy as np
import pytest

from body_transformer.deploy.contract import Environment
from body_transformer.deploy.observation import JointOrder, Measured, Observation, gravity_direction
from body_transformer.deploy.robot import State

from .virtual_robot import DEFAULT_POSE, JOINTS, ROBOT_JOINTS, a1_contract, a1_obs


def test_joints_states_and_commands_are_reordered_by_name_both_ways():
    order, rng = JointOrder(JOINTS, ROBOT_JOINTS), np.random.default_rng(0)
    given = rng.normal(size=(5, 12))  # a command's parts
    ordered = order.from_robot(given)
    for k, name in enumerate(JOINTS):
        np.testing.assert_array_equal(ordered[:, k], given[:, ROBOT_JOINTS.index(name)])
    np.testing.assert_array_equal(order.to_robot(ordered), given)
    state = State(1, 0.0, 0.0, *given[:3], *(rng.normal(size=size) for size in (3, 4, 3)))
    whole = [*ordered[:3].ravel(), *state.angular_velocity, *state.quaternion, *state.linear_velocity]
    np.testing.assert_array_equal(order.state_from_robot(state), whole)


@pytest.mark.parametrize(
    ("contract", "robot", "said"),
    [
        ("abc", "ab", ["the robot has no: 'c'"]),
        ("ab", "abc", ["the contract has no: 'c'"]),
        ("ab", "aab", ["twice in the robot: 'a'"]),
        ("aab", "ab", ["twice in the contract: 'a'"]),
        ("abc", "abd", ["the robot has no: 'c'", "the contract has no: 'd'"]),
    ],
)
def test_joints_that_do_not_match_are_refused_by_name(contract, robot, said):
    with pytest.raises(ValueError, match="the robot's joints are not the contract's") as error:
        JointOrder(tuple(contract), tuple(robot))
    assert all(text in str(error.value) for text in said)


def test_gravity_is_rotated_into_the_bodys_frame():
    out = np.zeros(3)
    gravity_direction(np.array([1.0, 0, 0, 0]), out)
    assert out.tolist() == [0, 0, -1]
    # nose down by 30 degrees about y: gravity points forward too
    gravity_direction(np.array([math.cos(math.pi / 12), 0, math.sin(math.pi / 12), 0]), out)
    np.testing.assert_allclose(out, [0.5, 0, -math.sqrt(0.75)], atol=1e-12)
    # rolled to the right by 90 degrees about x: gravity points to the body's right, -y
    gravity_direction(np.array([math.sqrt(0.5), math.sqrt(0.5), 0, 0]), out)
    np.testing.assert_allclose(out, [0, -1, 0], atol=1e-12)
    # turning about the vertical changes nothing, nor does the quaternion's sign or length
    gravity_direction(np.array([-0.6, 0, 0, -0.7]), out)
    np.testing.assert_allclose(out, [0, 0, -1], atol=1e-12)


def test_gravity_agrees_with_the_rotation_matrix():
    rng = np.random.default_rng(0)
    for w, x, y, z in rng.normal(size=(50, 4)):
        norm = math.sqrt(w * w + x * x + y * y + z * z)
        vector = np.array([x, y, z]) / norm
        cross = np.array([[0, -vector[2], vector[1]], [vector[2], 0, -vector[0]], [-vector[1], vector[0], 0]])
        rotation = np.eye(3) + 2 * w / norm * cross + 2 * cross @ cross  # Rodrigues, body to world
        out = np.zeros(3)
        gravity_direction(np.array([w, x, y, z]), out)
        np.testing.assert_allclose(out, rotation.T @ [0, 0, -1], atol=1e-12)


def measured() -> Measured:
    values = Measured(12)
    values.joint_pos[:] = np.arange(12) / 10
    values.joint_vel[:] = np.arange(12) - 5
    values.angular_velocity[:] = (1, 2, 3)
    values.gravity[:] = (0.1, 0.2, -0.97)
    return values


def test_the_observation_has_the_contracts_terms_in_its_order():
    action = np.linspace(-1, 1, 12)
    obs = Observation(a1_contract(), measured(), action, np.array([0.5, 0.1, 0.4])).update()
    assert obs.dtype == np.float32
    expected = np.concatenate(
        [
            np.zeros(3),
            np.array([1, 2, 3]) * 0.25,
            [0.1, 0.2, -0.97],
            [1.0, 0.2, 0.1],
            np.arange(12) / 10 - DEFAULT_POSE,
            (np.arange(12) - 5) * 0.05,
            action,
        ]
    )
    np.testing.assert_array_equal(obs, expected.astype(np.float32))


def test_the_linear_velocity_is_that_of_the_imu():
    values, rng = measured(), np.random.default_rng(0)
    values.linear_velocity[:], values.angular_velocity[:], imu = rng.normal(size=(3, 3))
    contract = Short((replace(a1_obs()[0], source="linear_velocity", clip=None),))
    contract.environment = Environment(imu=tuple(imu))
    obs = Observation(contract, values, np.zeros(12), np.zeros(3)).update()
    expected = values.linear_velocity + np.cross(values.angular_velocity, imu)
    np.testing.assert_allclose(obs, expected, atol=1e-6)


def test_a_term_is_clipped_after_it_is_scaled():
    terms = list(a1_obs())
    terms[5] = replace(terms[5], clip=0.2)
    obs = Observation(a1_contract(tuple(terms)), measured(), np.zeros(12), np.zeros(3)).update()
    np.testing.assert_allclose(obs[24:36], np.clip((np.arange(12) - 5) * 0.05, -0.2, 0.2), atol=1e-7)


def test_a_term_without_a_clip_is_not_clipped_beside_one_that_is():
    terms = list(a1_obs())
    terms[4], terms[5] = replace(terms[4], clip=None), replace(terms[5], clip=0.2)
    values = measured()
    values.joint_pos[:] = 1e6
    obs = Observation(a1_contract(tuple(terms)), values, np.zeros(12), np.zeros(3)).update()
    np.testing.assert_allclose(obs[12:24], 1e6, rtol=1e-5)
    assert np.abs(obs[24:36]).max() == np.float32(0.2)


class Short:
    """The part of a contract that an observation needs."""

    def __init__(self, terms):
        self.obs = terms
        self.obs_dim = sum(term.size * term.history for term in terms)


def test_history_has_the_oldest_first_and_starts_full():
    values = Measured(12)
    terms = (replace(a1_obs()[1], history=3), a1_obs()[3])
    observation = Observation(Short(terms), values, np.zeros(12), np.array([0.5, 0, 0]))
    for k, expected in enumerate([[1, 1, 1], [1, 1, 2], [1, 2, 3], [2, 3, 4]]):
        values.angular_velocity[:] = k + 1
        obs = observation.update()
        np.testing.assert_allclose(obs[:9], np.repeat(expected, 3) * 0.25)
        np.testing.assert_allclose(obs[9:], [1, 0, 0])
    observation.reset()
    np.testing.assert_allclose(observation.update()[:9], 1.0)


def test_a_term_that_no_robot_measures_is_refused():
    terms = (replace(a1_obs()[0], source=""), *a1_obs()[1:])
    with pytest.raises(ValueError, match="no robot measures 'base_linear_velocity'"):
        Observation(a1_contract(terms), measured(), np.zeros(12), np.zeros(3))


def test_a_term_of_the_wrong_size_is_refused():
    with pytest.raises(ValueError, match="'command' has 3 entries; command has 2"):
        Observation(Short(a1_obs()), measured(), np.zeros(12), np.zeros(2))
