"""Observation, reward and termination of a1-walk: pure functions of an A1State.

Every function takes B environments and returns [B] values (observations: [B, width]).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..envs.geometry import pitch, roll, rotate_back
from .model import CONTROL_DT, DECIMATION
from .robots import A1State

State = A1State
VELOCITY_SCALE, SPIN_SCALE, JOINT_VEL_SCALE = 2.0, 0.25, 0.05
"""Factors of m/s, rad/s and the joints' rad/s in the observation."""
TRACKING = 0.5
"""m²/s² or rad²/s²: squared error at which a tracking reward is 1/e."""
FLIGHT_S = 0.5
"""Time in the air above which a landing is rewarded and below which it is punished."""
STANDING = 0.1
"""Commanded speed below which time in the air does not count, m/s."""


# -- observation -------------------------------------------------------------------------------------------------------


def base_linear_velocity(state: State) -> Tensor:
    """Return the velocity of the trunk in its own frame."""
    return VELOCITY_SCALE * rotate_back(state.root.quat, state.root.vel)


def projected_gravity(state: State) -> Tensor:
    """Return the direction of gravity in the frame of the trunk: (0, 0, -1) where it is level."""
    w, x, y, z = state.root.quat.unbind(-1)
    return torch.stack([2 * (w * y - x * z), -2 * (y * z + w * x), 2 * (x * x + y * y) - 1], -1)


def command(state: State) -> Tensor:
    ahead, left, turn = state.command.unbind(-1)
    return torch.stack([VELOCITY_SCALE * ahead, VELOCITY_SCALE * left, SPIN_SCALE * turn], -1)


Observations = dict[str, Callable[[State], Tensor]]
"""Functions of terms. experiments/a1-walk.yaml states order, sizes and owners."""
SHARED: Observations = {
    "base_angular_velocity": lambda state: SPIN_SCALE * state.root.spin,
    "projected_gravity": projected_gravity,
    "command": command,
    "joint_pos": lambda state: state.joint_pos - state.joints.default,
    "joint_vel": lambda state: JOINT_VEL_SCALE * state.joint_vel,
    "previous_action": lambda state: state.action,
}
ACTOR_OBS: Observations = SHARED | {
    "base_linear_velocity": lambda state: torch.zeros_like(state.root.vel)  # the robot does not measure it
}
CRITIC_OBS: Observations = SHARED | {
    "base_linear_velocity": base_linear_velocity,
    "friction": lambda state: state.parameters.friction[:, None],
    "com_offset": lambda state: state.parameters.com_offset,
    "added_mass": lambda state: state.parameters.added_mass[:, None],
    "motor_strength": lambda state: state.parameters.strength,
}
NOISE = {"base_angular_velocity": 0.05, "projected_gravity": 0.05, "joint_pos": 0.01, "joint_vel": 0.075}
"""Largest error of the actor's observations, after scaling."""


# -- reward ------------------------------------------------------------------------------------------------------------


def tracking(state: State) -> Tensor:
    """Return 1 at the commanded velocity, in the frame of the trunk, and less around it."""
    error = state.command[:, :2] - rotate_back(state.root.quat, state.root.vel)[:, :2]
    return torch.exp(-error.square().sum(-1) / TRACKING)


def world_velocity(state: State) -> Tensor:
    """Return the error of the velocity in the world's frame, m/s. Its cost keeps the robot on its course."""
    error: Tensor = torch.linalg.vector_norm(state.command[:, :2] - state.root.vel[:, :2], dim=-1)
    return error


def turning(state: State) -> Tensor:
    """Return 1 at the commanded rate of turning and less around it."""
    return torch.exp(-(state.command[:, 2] - state.root.spin[:, 2]).square() / TRACKING)


def air_time(state: State) -> Tensor:
    """Return the time in the air beyond FLIGHT_S, summed over the feet that landed in this step."""
    beyond = ((state.flight - FLIGHT_S) * state.landed).sum(-1)
    return beyond * (state.command[:, :2].square().sum(-1) > STANDING**2)


def energy(state: State) -> Tensor:
    """Return the sum over joints of (power / W)², averaged over the physics steps."""
    return state.energy / DECIMATION


def joint_range(state: State) -> Tensor:
    """Return the number of joints outside the middle half of their range, averaged over the physics steps."""
    return state.outside / DECIMATION


def torque(state: State) -> Tensor:
    """Return 1 where a motor gave more than 25 Nm."""
    return state.overloaded.to(state.energy.dtype)


def forward_speed(state: State) -> Tensor:
    """Return the speed of the trunk along its heading, m/s, as commands mean it; the reward does not use it.

    A robot that cannot sense its heading cannot follow an axis of the world.
    """
    w, x, y, z = state.root.quat.unbind(-1)
    ahead = torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y + w * z)], -1)  # the trunk's x axis on the ground
    ahead = torch.nn.functional.normalize(ahead, dim=-1)
    return ((state.root.pos[:, :2] - state.previous_xy) * ahead).sum(-1) / CONTROL_DT


def commanded_speed(state: State) -> Tensor:
    """Return the commanded speed ahead, m/s."""
    return state.command[:, 0]


# -- termination -------------------------------------------------------------------------------------------------------

BASE_FORCE_N = 1.0
MAX_ROLL, MAX_PITCH = 0.8, 1.6
"""rad; the second is never reached, because no pitch is larger than 1.57."""
HEIGHTS = (0.15, 1.5)
"""m, of the trunk."""


def fallen(state: State) -> Tensor:
    """Return where the trunk has touched the ground, or is tilted too much, too low or too high."""
    height = state.root.pos[:, 2]
    tilted = (roll(state.root.quat).abs() > MAX_ROLL) | (pitch(state.root.quat).abs() > MAX_PITCH)
    return (state.base_force > BASE_FORCE_N) | tilted | (height < HEIGHTS[0]) | (height > HEIGHTS[1])
