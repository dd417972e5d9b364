"""Observation, reward and termination of motion tracking: pure functions of an ExpertState.

Every function takes B environments and returns [B] values (observations: [B, width]). Observations have the
names of dm_control's observables. Where a function follows dm_control, a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ...imitation.tasks.mocap.snippets import REF_STEPS
from ..envs.geometry import rotate, rotate_back
from .model import CONTROL_DT
from .options import TERMINATION_ERROR
from .robots import ExpertState

State = ExpertState
TOUCH_N = 1e-3
"""Force above which a touch sensor is in contact."""
TORQUE_NM = 60.0
"""Scale of the torque sensors."""


# -- geometry; quaternions are w x y z ---------------------------------------------------------------------------------


def rotation_between(source: Tensor, target: Tensor) -> Tensor:
    """Return the rotations [..., 4] from `source` to `target`, in the frame of `source`: its inverse times `target`."""
    w, x, y, z = source.unbind(-1)
    tw, tx, ty, tz = target.unbind(-1)
    return torch.stack(
        [
            w * tw + x * tx + y * ty + z * tz,
            w * tx - x * tw - y * tz + z * ty,
            w * ty + x * tz - y * tw - z * tx,
            w * tz - x * ty + y * tx - z * tw,
        ],
        -1,
    )


def half_angle(source: Tensor, target: Tensor) -> Tensor:
    """Return half of the angle between rotations, [...], rad, at most pi / 2.

    dm_control computes arccos(2 d² - 1) / 2 for the inner product d, which is inexact for small angles in float32.
    """
    nearer = torch.where((source * target).sum(-1, keepdim=True) < 0, -target, target)
    return 2 * torch.asin((torch.linalg.vector_norm(source - nearer, dim=-1) / 2).clamp(max=1.0))


# -- observation of the actor ------------------------------------------------------------------------------------------


def _ahead(state: State) -> Tensor:
    """Return the frames of the observed reference, [B, 5]."""
    return state.frame[:, None] + torch.arange(REF_STEPS[0], REF_STEPS[-1] + 1, device=state.frame.device)


def end_effectors_pos(state: State) -> Tensor:
    """Return hands and feet in the root's frame, m."""
    return limbs(state)[:, :-1].flatten(1)


def limbs(state: State) -> Tensor:
    """Return hands, feet and head in the root's frame, [B, 5, 3], m."""
    return rotate_back(state.root_quat, state.body_pos[:, state.limb_ids] - state.root.pos[:, None])


def gyro_control(state: State) -> Tensor:
    """Return the rotation of the root in the last control step divided by its duration, rad/s."""
    turned = rotation_between(state.previous_quat, state.root_quat)
    turned = torch.where(turned[:, :1] < 0, -turned, turned)
    sine = torch.linalg.vector_norm(turned[:, 1:], dim=-1, keepdim=True)
    axis: Tensor = turned[:, 1:] / sine.clamp_min(1e-12)
    return axis * 2 * torch.atan2(sine, turned[:, :1]) / CONTROL_DT


def reference_rel_bodies_pos_local(state: State) -> Tensor:
    """Return the reference's bodies at the next five frames relative to the walker's, in the root's frame, m."""
    ahead = state.motions.body_pos[_ahead(state)]  # [B, 5, 31, 3]
    return rotate_back(state.root_quat, (ahead - state.body_pos[:, None]).flatten(1, 2)).flatten(1)


def reference_rel_bodies_quats(state: State) -> Tensor:
    """Return the rotations from the walker's bodies to the reference's at the next five frames."""
    ahead = state.motions.body_quat[_ahead(state)]  # [B, 5, 31, 4]
    return rotation_between(state.body_quat[:, None], ahead).flatten(1)


def world_zaxis(state: State) -> Tensor:
    """Return the world's upward direction in the root's frame."""
    w, x, y, z = state.root_quat.unbind(-1)
    return torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1)


OBSERVATIONS: Mapping[str, Callable[[State], Tensor]] = {
    "actuator_activation": lambda state: state.activation,
    "body_height": lambda state: state.root.pos[:, 2:],
    "end_effectors_pos": end_effectors_pos,
    "gyro_control": gyro_control,
    "joints_pos": lambda state: state.joint_pos,
    "joints_vel": lambda state: state.joint_vel,
    "reference_rel_bodies_pos_local": reference_rel_bodies_pos_local,
    "reference_rel_bodies_quats": reference_rel_bodies_quats,
    "sensors_gyro": lambda state: state.root.spin,
    "sensors_torque": lambda state: torch.tanh(2 * state.torque / TORQUE_NM),
    "sensors_touch": lambda state: (state.touch > TOUCH_N).to(state.touch.dtype),
    "sensors_velocimeter": lambda state: rotate_back(state.root_quat, state.root.vel),
    "world_zaxis": world_zaxis,
}
"""Functions of the actor's terms. experiments/mocap-expert.yaml states order, sizes and owners."""


# -- observation of the critic alone: the reference at the next frame --------------------------------------------------


def reference_root_pos(state: State) -> Tensor:
    """Return the position of the reference's root in the walker's root frame, m."""
    return rotate_back(state.root_quat, state.motions.root_pos[state.frame + 1] - state.root.pos)


CRITIC_OBSERVATIONS: Mapping[str, Callable[[State], Tensor]] = {
    "reference_root_pos": reference_root_pos,
    "reference_root_quat": lambda state: rotation_between(state.root_quat, state.motions.root_quat[state.frame + 1]),
    "reference_root_vel": lambda state: rotate_back(state.root_quat, state.motions.root_vel[state.frame + 1]),
    "reference_joints_pos": lambda state: state.motions.joint_pos[state.frame + 1] - state.joint_pos,
    "reference_joints_vel": lambda state: state.motions.joint_vel[state.frame + 1] - state.joint_vel,
    "velocity": lambda state: state.root.vel,
    "angular_velocity": lambda state: rotate(state.root_quat, state.root.spin),
    "tracking_error": lambda state: tracking_error(state)[:, None],
}
"""Functions of the critic's further terms."""


# -- reward ------------------------------------------------------------------------------------------------------------


def comic(state: State) -> Tensor:
    """Return dm_control's reward of that name (Hasenclever et al. 2020), at most 1.45.

    Its error term always uses TERMINATION_ERROR, not the task's `max_error`.
    """
    motions, frame = state.motions, state.frame
    pose = (
        0.1 * torch.exp(-10 * (state.center - motions.center[frame]).square().sum(-1))
        + torch.exp(-0.1 * (state.joint_vel - motions.joint_vel[frame]).square().sum(-1))
        + 0.15 * torch.exp(-40 * (limbs(state) - motions.limbs[frame]).square().sum((1, 2)))
        + 0.65 * torch.exp(-2 * half_angle(state.body_quat, motions.body_quat[frame]).square().sum(-1))
    )
    return 0.5 * (1 - tracking_error(state) / TERMINATION_ERROR) + 0.5 * pose


def joints(state: State) -> Tensor:
    """Return 1 at the reference's angles, and 0.4 where they differ by 0.3 rad on average."""
    difference = state.joint_pos - state.motions.joint_pos[state.frame]
    return torch.exp(-10 * difference.square().mean(-1))


def joint_velocities(state: State) -> Tensor:
    """Return 1 at the reference's velocities, and 0.6 where they differ by 1 rad/s on average.

    dm_control's kernel sums over joints and is only 0.004 there, too little for a policy that explores.
    """
    difference = state.joint_vel - state.motions.joint_vel[state.frame]
    return torch.exp(-0.5 * difference.square().mean(-1))


def body_rotations(state: State) -> Tensor:
    """Return 1 at the reference's rotations of bodies, and 0.4 where they differ by 0.6 rad on average."""
    halves = half_angle(state.body_quat, state.motions.body_quat[state.frame])
    return torch.exp(-10 * halves.square().mean(-1))


# -- termination -------------------------------------------------------------------------------------------------------


def tracking_error(state: State) -> Tensor:
    """Return half the mean difference of body coordinates (m) plus half that of joint angles (rad), as dm_control."""
    motions, frame = state.motions, state.frame
    bodies = (state.body_pos - motions.body_pos[frame]).abs().mean((1, 2))
    angles = (state.joint_pos - motions.joint_pos[frame]).abs().mean(-1)
    return 0.5 * bodies + 0.5 * angles


def lost(state: State, max_error: float) -> Tensor:
    """Return where the walker is too far from the reference."""
    return tracking_error(state) > max_error


def at_end(state: State) -> Tensor:
    """Return where the clip or snippet is over."""
    return state.frame >= state.end
