"""Observation, reward and termination of a1-walk: small functions of a State.

Every function takes B environments and gives B values (observations: [B, width]).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .model import CONTROL_DT, DECIMATION
from .parameters import Parameters
from .state import Joints, State

VELOCITY_SCALE, SPIN_SCALE, JOINT_VEL_SCALE = 2.0, 0.25, 0.05
"""Of m/s, rad/s and joints' rad/s in the observation."""
TRACKING = 0.5
"""m²/s² or rad²/s²: error squared at which a tracking reward is down to 1/e."""
FLIGHT_S = 0.5
"""A longer time in the air is rewarded, a shorter one punished."""
STANDING = 0.1
"""m/s: who is told to be slower need not lift its feet."""


def to_body(state: State, vector: Tensor) -> Tensor:
    """[B, 3] from the world's frame to the trunk's."""
    w, axis = state.base_quat[:, :1], -state.base_quat[:, 1:]
    twice = 2 * torch.cross(axis, vector, dim=-1)
    return vector + w * twice + torch.cross(axis, twice, dim=-1)


# -- observation -------------------------------------------------------------------------------------------------------


def no_velocity(state: State) -> Tensor:
    """The robot does not measure its velocity; the place is kept for it."""
    return torch.zeros_like(state.base_vel)


def base_linear_velocity(state: State) -> Tensor:
    """The trunk's, in its own frame."""
    return VELOCITY_SCALE * to_body(state, state.base_vel)


def base_angular_velocity(state: State) -> Tensor:
    return SPIN_SCALE * state.base_spin


def projected_gravity(state: State) -> Tensor:
    """Which way is down, in the trunk's frame: (0, 0, -1) where it is level."""
    w, x, y, z = state.base_quat.unbind(-1)
    return torch.stack([2 * (w * y - x * z), -2 * (y * z + w * x), 2 * (x * x + y * y) - 1], -1)


def command(state: State) -> Tensor:
    ahead, left, turn = state.command.unbind(-1)
    return torch.stack([VELOCITY_SCALE * ahead, VELOCITY_SCALE * left, SPIN_SCALE * turn], -1)


def joint_pos(state: State, joints: Joints) -> Tensor:
    """From the default pose."""
    return state.joint_pos - joints.default


def joint_vel(state: State) -> Tensor:
    return JOINT_VEL_SCALE * state.joint_vel


def previous_action(state: State) -> Tensor:
    return state.action


NOISE = {
    "base_angular_velocity": 0.05,
    "projected_gravity": 0.05,
    "joint_pos": 0.01,
    "joint_vel": 0.075,
}
"""Largest error of the actor's observations, as they are scaled."""
WIDTHS = {
    "base_linear_velocity": 3,
    "base_angular_velocity": 3,
    "projected_gravity": 3,
    "command": 3,
    "joint_pos": 12,
    "joint_vel": 12,
    "previous_action": 12,
}
"""The actor's terms in their order, 48 entries."""


def observation(state: State, joints: Joints, velocity: Tensor) -> Tensor:
    """[B, 48]; `velocity` [B, 3] is what the first three entries say."""
    return torch.cat(
        [
            velocity,
            base_angular_velocity(state),
            projected_gravity(state),
            command(state),
            joint_pos(state, joints),
            joint_vel(state),
            previous_action(state),
        ],
        -1,
    )


def privileged(parameters: Parameters) -> Tensor:
    """[B, 17]: friction, centre of mass, mass, strengths of the motors."""
    return torch.cat(
        [parameters.friction[:, None], parameters.com_offset, parameters.added_mass[:, None], parameters.strength], -1
    )


# -- reward ------------------------------------------------------------------------------------------------------------

REWARD_WEIGHTS = {
    "tracking": 2.0,
    "world_velocity": -2.0,
    "turning": 0.05,
    "alive": 2.0,
    "air_time": 2.0,
    "energy": -2e-5,
    "joint_range": -0.1,
    "torque": -0.2,
}
"""The reward of a step is 0.02 (its seconds) x the weighted sum of the functions below, or 0 where that is negative."""


def tracking(state: State) -> Tensor:
    """1 at the commanded velocity, in the trunk's frame."""
    error = state.command[:, :2] - to_body(state, state.base_vel)[:, :2]
    return torch.exp(-error.square().sum(-1) / TRACKING)


def world_velocity(state: State) -> Tensor:
    """How far off the velocity is in the world's frame, m/s: so the robot stays on its way."""
    error: Tensor = torch.linalg.vector_norm(state.command[:, :2] - state.base_vel[:, :2], dim=-1)
    return error


def turning(state: State) -> Tensor:
    """1 at the commanded rate of turning."""
    return torch.exp(-(state.command[:, 2] - state.base_spin[:, 2]).square() / TRACKING)


def alive(state: State) -> Tensor:
    return torch.ones_like(state.energy)


def air_time(state: State) -> Tensor:
    """Of feet that landed in this step: how long they were in the air, beyond FLIGHT_S."""
    beyond = ((state.flight - FLIGHT_S) * state.landed).sum(-1)
    return beyond * (state.command[:, :2].square().sum(-1) > STANDING**2)


def energy(state: State) -> Tensor:
    """Sum over joints of (power / W)², on average over the physics steps."""
    return state.energy / DECIMATION


def joint_range(state: State) -> Tensor:
    """Number of joints outside the middle half of their range, on average over the physics steps."""
    return state.outside / DECIMATION


def torque(state: State) -> Tensor:
    """1 if a motor gave more than 25 Nm."""
    return state.overloaded.to(state.energy.dtype)


def forward_speed(state: State) -> Tensor:
    """How far the step has brought the trunk ahead, where it looks, m/s; no part of the reward.

    A command is meant so, too: a robot that cannot sense its heading cannot keep to an axis of the world.
    """
    w, x, y, z = state.base_quat.unbind(-1)
    ahead = torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y + w * z)], -1)  # of the trunk's x axis, on the ground
    ahead = torch.nn.functional.normalize(ahead, dim=-1)
    return ((state.base_pos[:, :2] - state.previous_xy) * ahead).sum(-1) / CONTROL_DT


# -- termination -------------------------------------------------------------------------------------------------------

BASE_FORCE_N = 1.0
MAX_ROLL, MAX_PITCH = 0.8, 1.6
"""rad; the latter is beyond what a pitch can be, and so never reached."""
HEIGHTS = (0.15, 1.5)
"""m, of the trunk."""


def roll_pitch(state: State) -> tuple[Tensor, Tensor]:
    """rad, about x and y."""
    w, x, y, z = state.base_quat.unbind(-1)
    roll = torch.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    return roll, torch.asin((2 * (w * y - z * x)).clamp(-1.0, 1.0))


def fallen(state: State) -> Tensor:
    """The trunk has touched the ground, is tilted too much, too low or too high."""
    roll, pitch = roll_pitch(state)
    height = state.base_pos[:, 2]
    tilted = (roll.abs() > MAX_ROLL) | (pitch.abs() > MAX_PITCH)
    return (state.base_force > BASE_FORCE_N) | tilted | (height < HEIGHTS[0]) | (height > HEIGHTS[1])


def outside(state: State, low: tuple[float, float], high: tuple[float, float]) -> Tensor:
    """The trunk is not above the rectangle from `low` to `high`."""
    x, y = state.base_pos[:, 0], state.base_pos[:, 1]
    return (x < low[0]) | (x > high[0]) | (y < low[1]) | (y > high[1])
