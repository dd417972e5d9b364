"""Observation, reward and termination of the humanoid tasks: pure functions of a HumanoidState.

Every function takes B environments and returns [B] values (observations: [B, width]).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...body.layout import Term
from ..envs.geometry import pitch, roll, rotate, yaw
from ..envs.terms import ObservationTerm
from .model import BODIES, CONTROL_DT, FEET
from .robots import HumanoidState, Stack

State = HumanoidState
ALLOWED_FORCE_N = 1.0
"""A larger contact force on a body other than a foot is a fall."""
_FEET = [BODIES.index(foot) for foot in FEET]


# -- observation -------------------------------------------------------------------------------------------------------


def torso_roll_pitch_yaw(state: State) -> Tensor:
    """Return the angles about x, then y, then z of the world, in [-pi, pi]."""
    return _roll_pitch_yaw(state.root.quat)


def torso_angular_velocity(state: State) -> Tensor:
    """Return the angular velocity in the world's frame."""
    return rotate(state.root.quat, state.root.spin)


def joint_pos(state: State) -> Tensor:
    """Return the joint positions, scaled so that -1 and 1 are the ends of their ranges."""
    return (state.joint_pos - state.joints.middle) / state.joints.half_range


def joint_vel(state: State) -> Tensor:
    return 0.1 * state.joint_vel


def _roll_pitch_yaw(quat: Tensor) -> Tensor:
    return torch.stack([roll(quat), pitch(quat), yaw(quat)], -1)


OBSERVATIONS: dict[str, Callable[[State], Tensor]] = {
    "torso_height": lambda state: state.root.pos[:, 2:],
    "torso_velocity": lambda state: state.root.vel,
    "torso_roll_pitch_yaw": torso_roll_pitch_yaw,
    "torso_angular_velocity": torso_angular_velocity,
    "joint_pos": joint_pos,
    "joint_vel": joint_vel,
    "contact_force": lambda state: state.contact_force.flatten(1),  # N, not scaled
}
"""Functions of the actor's terms. experiments/humanoid-mod.yaml states order, sizes and owners."""


# -- observations of board and cylinder, for the critic alone ----------------------------------------------------------


def _stack(state: State) -> Stack:
    assert state.stack is not None  # only scenes with board and cylinder have these terms
    return state.stack


def _board_from_cylinder(state: State) -> Tensor:
    stack = _stack(state)
    return stack.board.pos[:, 1:] - stack.cylinder.pos[:, 1:]


def _board_angular_velocity(state: State) -> Tensor:
    board = _stack(state).board
    return rotate(board.quat, board.spin)


_PRIVILEGED: dict[str, tuple[int, Callable[[State], Tensor]]] = {
    "board_roll_pitch_yaw": (3, lambda state: _roll_pitch_yaw(_stack(state).board.quat)),
    "board_from_cylinder": (2, _board_from_cylinder),  # centre to centre, across (y) and up, m
    "board_from_torso": (2, lambda state: _stack(state).board.pos[:, :2] - state.root.pos[:, :2]),  # x and y, m
    "board_velocity": (3, lambda state: _stack(state).board.vel),
    "board_angular_velocity": (3, _board_angular_velocity),  # in the world's frame
    "cylinder_velocity": (1, lambda state: _stack(state).cylinder.vel[:, 1:2]),  # along y, in which it rolls, m/s
    "cylinder_spin": (1, lambda state: _stack(state).cylinder.spin[:, :1]),  # about its axis, rad/s
    "torso_from_cylinder": (2, lambda state: state.root.pos[:, :2] - _stack(state).cylinder.pos[:, :2]),  # x, y, m
}
PRIVILEGED = tuple(ObservationTerm(Term.root(name, size), value) for name, (size, value) in _PRIVILEGED.items())
"""Terms of board and cylinder: 17 entries, which the root owns because they are no part of the robot."""


# -- reward ------------------------------------------------------------------------------------------------------------


def progress(state: State, target: tuple[float, float]) -> Tensor:
    """Return the speed towards the target, m/s: the decrease of the torso's distance in this step.

    The difference of distances is written as a quotient. At 1000 m, float32 cannot resolve a step's centimetres.
    """
    x, y = state.root.pos[:, 0], state.root.pos[:, 1]
    before_x, before_y = state.previous_xy.unbind(-1)
    now = torch.hypot(x - target[0], y - target[1])
    before = torch.hypot(before_x - target[0], before_y - target[1])
    nearer = (before_x - x) * (before_x + x - 2 * target[0]) + (before_y - y) * (before_y + y - 2 * target[1])
    return nearer / (before + now).clamp_min(1e-6) / CONTROL_DT


def upright(state: State) -> Tensor:
    """Return 1 where the torso's z axis is within 21.6 degrees of the world's."""
    _, x, y, _ = state.root.quat.unbind(-1)
    return (1 - 2 * (x * x + y * y) > 0.93).float()


def heading(state: State, direction: Callable[[State], tuple[Tensor, Tensor]]) -> Tensor:
    """Return 1 where h > 0.8, else h / 0.8; h is the cosine between the torso's x axis and the direction."""
    w, x, y, z = state.root.quat.unbind(-1)
    to_x, to_y = direction(state)
    cosine = (1 - 2 * (y * y + z * z)) * to_x + 2 * (x * y + w * z) * to_y
    return (cosine / 0.8).masked_fill(cosine > 0.8, 1.0)


def to_target(state: State, target: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Return the unit vector (x, y) from the torso to the target."""
    x, y = target[0] - state.root.pos[:, 0], target[1] - state.root.pos[:, 1]
    distance = torch.hypot(x, y).clamp_min(1e-6)
    return x / distance, y / distance


def straight_ahead(state: State) -> tuple[Tensor, Tensor]:
    """Return the unit vector (x, y) of the direction in which the robot starts: the world's x axis."""
    x = state.root.pos[:, 0]
    return torch.ones_like(x), torch.zeros_like(x)


def effort(state: State) -> Tensor:
    return state.action.square().sum(-1)


def energy(state: State) -> Tensor:
    """Return the sum of |action x observed joint velocity|, weighted by the strength of the motors."""
    return ((state.action * joint_vel(state)).abs() * state.joints.strength).sum(-1)


def limits(state: State) -> Tensor:
    """Return how far joints are into the last hundredth of their range, 1 at its end, weighted like `energy`."""
    beyond = (joint_pos(state).abs() - 0.98).clamp_min(0.0) / 0.02
    return (beyond * state.joints.strength).sum(-1)


def forward_speed(state: State) -> Tensor:
    """Return the speed along the world's x axis, m/s. Evaluations report it; the reward does not use it."""
    return (state.root.pos[:, 0] - state.previous_xy[:, 0]) / CONTROL_DT


# -- termination -------------------------------------------------------------------------------------------------------


def fallen(state: State) -> Tensor:
    """Return where more than 1 N acts on a body that is not a foot, including contact of the robot with itself."""
    hit = state.contact_force.square().sum(-1) > ALLOWED_FORCE_N**2
    for foot in _FEET:  # an index tensor would be copied from the host at every step
        hit[:, foot].fill_(False)
    return hit.any(-1)


def below(state: State, height: float) -> Tensor:
    """Return where the torso is lower than `height`."""
    return state.root.pos[:, 2] < height
