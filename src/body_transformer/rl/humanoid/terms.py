"""Observation, reward and termination of the humanoid tasks: small functions of a State (or a Stack).

Every function takes B environments and gives B values (observations: [B, width]).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .model import BODIES, CONTROL_DT, FEET
from .state import Joints, Stack, State

ALLOWED_FORCE_N = 1.0
"""A body other than a foot that feels more has fallen."""
_FEET = [BODIES.index(foot) for foot in FEET]


# -- observation -------------------------------------------------------------------------------------------------------


def torso_height(state: State) -> Tensor:
    return state.torso_pos[:, 2:]


def torso_velocity(state: State) -> Tensor:
    return state.torso_vel


def torso_roll_pitch_yaw(state: State) -> Tensor:
    return _roll_pitch_yaw(state.torso_quat)


def _roll_pitch_yaw(quat: Tensor) -> Tensor:
    """Angles about x, then y, then z of the world, in [-pi, pi]."""
    w, x, y, z = quat.unbind(-1)
    roll = torch.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = torch.asin((2 * (w * y - z * x)).clamp(-1.0, 1.0))
    yaw = torch.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return torch.stack([roll, pitch, yaw], -1)


def torso_angular_velocity(state: State) -> Tensor:
    """In the world's frame; the simulator holds it in the torso's."""
    return _to_world(state.torso_quat, state.torso_spin)


def _to_world(quat: Tensor, vector: Tensor) -> Tensor:
    w, axis = quat[:, :1], quat[:, 1:]
    twice = 2 * torch.cross(axis, vector, dim=-1)
    return vector + w * twice + torch.cross(axis, twice, dim=-1)


def joint_pos(state: State, joints: Joints) -> Tensor:
    """-1 and 1 are the ends of the joint's range."""
    return (state.joint_pos - joints.middle) / joints.half_range


def joint_vel(state: State) -> Tensor:
    return 0.1 * state.joint_vel


def contact_force(state: State) -> Tensor:
    """[B, 48], N, not scaled."""
    return state.contact_force.flatten(1)


def observation(state: State, joints: Joints) -> Tensor:
    """[B, 100]: all of the above, in this order."""
    return torch.cat(
        [
            torso_height(state),
            torso_velocity(state),
            torso_roll_pitch_yaw(state),
            torso_angular_velocity(state),
            joint_pos(state, joints),
            joint_vel(state),
            contact_force(state),
        ],
        -1,
    )


# -- what the critic alone can be told ---------------------------------------------------------------------------------

PRIVILEGED = {
    "board_roll_pitch_yaw": "board",
    "board_from_cylinder": "board",
    "board_from_torso": "board",
    "board_velocity": "board",
    "board_angular_velocity": "board",
    "cylinder_velocity": "cylinder",
    "cylinder_spin": "cylinder",
    "torso_from_cylinder": "cylinder",
}
"""The functions below, in their order -> the entity that each is about."""


def board_roll_pitch_yaw(stack: Stack) -> Tensor:
    return _roll_pitch_yaw(stack.board.quat)


def board_from_cylinder(stack: Stack) -> Tensor:
    """[B, 2], m: across the cylinder (y) and up; centre from centre."""
    return stack.board.pos[:, 1:] - stack.cylinder.pos[:, 1:]


def board_from_torso(stack: Stack) -> Tensor:
    """[B, 2], m: x and y."""
    return stack.board.pos[:, :2] - stack.torso.pos[:, :2]


def board_velocity(stack: Stack) -> Tensor:
    return stack.board.vel


def board_angular_velocity(stack: Stack) -> Tensor:
    """In the world's frame."""
    return _to_world(stack.board.quat, stack.board.spin)


def cylinder_velocity(stack: Stack) -> Tensor:
    """[B, 1], m/s along y: the way it rolls."""
    return stack.cylinder.vel[:, 1:2]


def cylinder_spin(stack: Stack) -> Tensor:
    """[B, 1], rad/s about its axis."""
    return stack.cylinder.spin[:, :1]


def torso_from_cylinder(stack: Stack) -> Tensor:
    """[B, 2], m: x and y."""
    return stack.torso.pos[:, :2] - stack.cylinder.pos[:, :2]


def privileged(stack: Stack) -> Tensor:
    """[B, 17]: all of PRIVILEGED, in its order."""
    return torch.cat(
        [
            board_roll_pitch_yaw(stack),
            board_from_cylinder(stack),
            board_from_torso(stack),
            board_velocity(stack),
            board_angular_velocity(stack),
            cylinder_velocity(stack),
            cylinder_spin(stack),
            torso_from_cylinder(stack),
        ],
        -1,
    )


# -- reward ------------------------------------------------------------------------------------------------------------

REWARD_WEIGHTS = {
    "progress": 1.0,
    "alive": 2.0,
    "upright": 0.1,
    "heading": 0.5,
    "effort": -0.01,
    "energy": -0.05,
    "limits": -0.25,
    "death": -1.0,
}
"""The reward of a step is the weighted sum of the functions below; who dies in it gets the last one only."""


def progress(state: State, target: tuple[float, float]) -> Tensor:
    """Speed towards the target, m/s: how much nearer the step has brought the torso.

    A difference of distances written as a quotient: of 1000 m, float32 keeps too little of a step's centimetres.
    """
    x, y = state.torso_pos[:, 0], state.torso_pos[:, 1]
    before_x, before_y = state.previous_xy.unbind(-1)
    now = torch.hypot(x - target[0], y - target[1])
    before = torch.hypot(before_x - target[0], before_y - target[1])
    nearer = (before_x - x) * (before_x + x - 2 * target[0]) + (before_y - y) * (before_y + y - 2 * target[1])
    return nearer / (before + now).clamp_min(1e-6) / CONTROL_DT


def forward_speed(state: State) -> Tensor:
    """Along the world's x axis, m/s; no part of the reward: what evaluations say beside it."""
    return (state.torso_pos[:, 0] - state.previous_xy[:, 0]) / CONTROL_DT


def upright(state: State) -> Tensor:
    """1 where the torso's z axis is within 21.6 degrees of the world's."""
    _, x, y, _ = state.torso_quat.unbind(-1)
    return (1 - 2 * (x * x + y * y) > 0.93).float()


def to_target(state: State, target: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Unit vector (x, y) from the torso to the target."""
    x, y = target[0] - state.torso_pos[:, 0], target[1] - state.torso_pos[:, 1]
    distance = torch.hypot(x, y).clamp_min(1e-6)
    return x / distance, y / distance


def straight_ahead(state: State) -> tuple[Tensor, Tensor]:
    """Unit vector (x, y) of the direction in which the robot starts: the world's x axis."""
    x = state.torso_pos[:, 0]
    return torch.ones_like(x), torch.zeros_like(x)


def heading(state: State, direction: tuple[Tensor, Tensor]) -> Tensor:
    """1 where the torso's x axis points in that direction (h > 0.8), else h / 0.8; h is the cosine between the two."""
    w, x, y, z = state.torso_quat.unbind(-1)
    cosine = (1 - 2 * (y * y + z * z)) * direction[0] + 2 * (x * y + w * z) * direction[1]
    return (cosine / 0.8).masked_fill(cosine > 0.8, 1.0)


def effort(state: State) -> Tensor:
    return state.action.square().sum(-1)


def energy(state: State, joints: Joints) -> Tensor:
    """|action x joint velocity as observed|, strong motors count more."""
    return ((state.action * joint_vel(state)).abs() * joints.strength).sum(-1)


def limits(state: State, joints: Joints) -> Tensor:
    """How far joints are in the last hundredth of their range on either side: 0 where it begins, 1 at the end."""
    beyond = (joint_pos(state, joints).abs() - 0.98).clamp_min(0.0) / 0.02
    return (beyond * joints.strength).sum(-1)


# -- termination -------------------------------------------------------------------------------------------------------


def fallen(state: State) -> Tensor:
    """A body that is no foot feels a contact force of more than 1 N; a contact with the robot itself is one too."""
    hit = state.contact_force.square().sum(-1) > ALLOWED_FORCE_N**2
    for foot in _FEET:  # an index tensor of all others would come from the host at every step
        hit[:, foot].fill_(False)
    return hit.any(-1)


def below(state: State, height: float) -> Tensor:
    """The torso is lower than that."""
    return state.torso_pos[:, 2] < height


def outside(state: State, low: tuple[float, float], high: tuple[float, float]) -> Tensor:
    """The torso is not above the rectangle from `low` to `high`."""
    x, y = state.torso_pos[:, 0], state.torso_pos[:, 1]
    return (x < low[0]) | (x > high[0]) | (y < low[1]) | (y > high[1])
