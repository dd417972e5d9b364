"""Observation, reward and termination of a1-walk and a1-command: pure functions of an A1State.

Every function takes B environments and returns [B] values (observations: [B, width]). Which terms a task has, and with
which weights, is listed in walk.py and in command.py.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..envs.geometry import pitch, roll, rotate_back, yaw
from ..walking import Motion, wrapped
from .model import CONTROL_DT, DECIMATION
from .state import A1State

State = A1State
VELOCITY_SCALE, SPIN_SCALE, JOINT_VEL_SCALE = 2.0, 0.25, 0.05
"""Factors of m/s, rad/s and the joints' rad/s in the observation."""
LATENCY_SCALE = 0.1
"""Factor of physics steps in the critic's observation."""
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
"""Functions of terms. The experiment's file states order, sizes and owners."""
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
COMMAND_CRITIC_OBS: Observations = CRITIC_OBS | {
    "stiffness": lambda state: state.parameters.stiffness[:, None],
    "damping": lambda state: state.parameters.damping[:, None],
    "latency": lambda state: LATENCY_SCALE * state.parameters.latency[:, None].to(state.joint_pos),
    "heading_error": lambda state: heading_error(state)[:, None],
    "foot_contact": lambda state: state.on_ground.to(state.joint_pos),
}
"""The actor of a1-command has the terms SHARED."""
NOISE = {"base_angular_velocity": 0.05, "projected_gravity": 0.05, "joint_pos": 0.01, "joint_vel": 0.075}
"""Largest error of the actor's observations, after scaling."""


# -- reward ------------------------------------------------------------------------------------------------------------


def tracking(state: State, scale: float = TRACKING) -> Tensor:
    """Return 1 at the commanded velocity, in the frame of the trunk, and 1/e at the squared error `scale`."""
    error = state.command[:, :2] - rotate_back(state.root.quat, state.root.vel)[:, :2]
    return torch.exp(-error.square().sum(-1) / scale)


def world_velocity(state: State) -> Tensor:
    """Return the error of the velocity in the world's frame, m/s. Its cost keeps the robot on its course."""
    error: Tensor = torch.linalg.vector_norm(state.command[:, :2] - state.root.vel[:, :2], dim=-1)
    return error


def turning(state: State, scale: float = TRACKING) -> Tensor:
    """Return 1 at the commanded rate of turning, and 1/e at the squared error `scale`."""
    return torch.exp(-(state.command[:, 2] - state.root.spin[:, 2]).square() / scale)


def air_time(state: State, flight_s: float = FLIGHT_S) -> Tensor:
    """Return the time in the air beyond `flight_s`, summed over the feet that landed in this step."""
    beyond = ((state.flight - flight_s) * state.landed).sum(-1)
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


# -- reward of a1-command ----------------------------------------------------------------------------------------------

FOOT_HEIGHT = 0.06
"""Height of a foot in the middle of its swing, m."""


def heading_error(state: State) -> Tensor:
    """Return the angle from the wanted heading to the trunk's, rad in [-pi, pi)."""
    return wrapped(yaw(state.root.quat) - state.wanted_heading)


def off_heading(state: State) -> Tensor:
    """Return the size of the heading's error, rad, at most 1.

    The actor cannot observe it. The term rewards policies whose turning has no bias.
    """
    return heading_error(state).abs().clamp_max(1.0)


def bouncing(state: State) -> Tensor:
    """Return the squared vertical speed of the trunk, m²/s²."""
    return state.root.vel[:, 2].square()


def rocking(state: State) -> Tensor:
    """Return the squared rate of rolling and pitching, rad²/s²."""
    return state.root.spin[:, :2].square().sum(-1)


def tilting(state: State) -> Tensor:
    """Return the squared sine of the trunk's tilt."""
    return projected_gravity(state)[:, :2].square().sum(-1)


def action_rate(state: State) -> Tensor:
    """Return the squared change of the action."""
    return (state.action - state.previous_action).square().sum(-1)


def action_bend(state: State) -> Tensor:
    """Return the squared second difference of the action."""
    return (state.action - 2 * state.previous_action + state.older_action).square().sum(-1)


def dragging(state: State) -> Tensor:
    """Return the speed of feet in the air times their distance from FOOT_HEIGHT, summed over the feet, m²/s."""
    low = (state.foot_height - FOOT_HEIGHT).abs() * state.foot_speed
    return (low * ~state.on_ground * is_moving(state)[:, None]).sum(-1)


def slipping(state: State) -> Tensor:
    """Return the squared speed of feet on the ground, m²/s²."""
    return (state.foot_speed.square() * state.stayed).sum(-1)


def swing(state: State) -> Tensor:
    """Return the standard deviation of each joint in the last second or so, [B, 12], rad."""
    return (state.joint_square - state.joint_mean.square()).clamp_min(1e-8).sqrt()


def asymmetry(state: State) -> Tensor:
    """Return how much left and right legs differ in swing and in mean angle, rad, on a straight course; else 0."""
    swings = swing(state).view(-1, 2, 2, 3)  # front and rear, left and right, hip and thigh and calf
    left, right = state.joint_mean.view(-1, 2, 2, 3).unbind(2)
    uneven = (swings[:, :, 0] - swings[:, :, 1]).abs().sum((1, 2))
    skewed = (left[..., 1:] - right[..., 1:]).abs().sum((1, 2)) + (left[..., 0] + right[..., 0]).abs().sum(1)
    return (uneven + skewed) * is_straight(state)


def fidgeting(state: State) -> Tensor:
    """Return the distance of the joints from the default pose, summed, rad, where standing is commanded; else 0."""
    return (state.joint_pos - state.joints.default).abs().sum(-1) * ~is_moving(state)


def is_moving(state: State) -> Tensor:
    """Return where a motion is commanded, [B, bool]."""
    return state.command.square().sum(-1) > STANDING**2


def is_straight(state: State) -> Tensor:
    """Return where neither a turn nor a sideways motion is commanded, [B, bool]."""
    return (state.command[:, 1].abs() < 0.1) & (state.command[:, 2].abs() < 0.2)


# -- evaluation --------------------------------------------------------------------------------------------------------


def motion(state: State) -> Motion:
    """Return what evaluations measure of a walking robot."""
    slip = (state.foot_speed * state.stayed).sum(-1) / state.stayed.sum(-1).clamp_min(1)
    return Motion(
        xy=state.root.pos[:, :2],
        heading=yaw(state.root.quat),
        command=state.command,
        power=(state.torque * state.joint_vel).abs().sum(-1),
        slip=slip,
        thighs=state.joint_pos.view(-1, 2, 2, 3)[..., 1],
    )


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
