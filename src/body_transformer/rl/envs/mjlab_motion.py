"""The motion of the robots in mjlab's velocity tasks, for evaluations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..walking import Motion

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnv

SIDES = (("left", "right"), ("FL", "FR"), ("RL", "RR"))
"""Names of left and right in the names of joints."""
THIGHS = ("thigh", "hip_pitch")
"""Parts of the names of the joints that swing a leg."""


def motion_of(env: ManagerBasedRlEnv) -> Motion | None:
    """Return the motion of the robots; None for a task without commanded velocities."""
    terms: list[Any] = [env.command_manager.get_term(name) for name in env.command_manager.active_terms]
    follower = next((term for term in terms if hasattr(term, "vel_command_b") and hasattr(term, "robot")), None)
    if follower is None:
        return None
    robot = follower.robot
    names: list[str] = list(robot.joint_names)
    pairs = thigh_pairs(names)
    return Motion(
        xy=robot.data.root_link_pos_w[:, :2],
        heading=robot.data.heading_w,
        command=follower.command[:, :3],
        power=(robot.data.qfrc_actuator * robot.data.joint_vel).abs().sum(-1),
        slip=_slip(env),
        thighs=torch.stack([robot.data.joint_pos[:, list(pair)] for pair in pairs], 1) if pairs else None,
    )


def thigh_pairs(names: list[str]) -> list[tuple[int, int]]:
    """Return the indices of left and right thighs, by name."""
    found = []
    for k, name in enumerate(names):
        for left, right in SIDES:
            other = name.replace(left, right)
            if left in name and any(part in name for part in THIGHS) and other in names:
                found.append((k, names.index(other)))
    return found


def _slip(env: ManagerBasedRlEnv) -> Tensor | None:
    """Return the mean speed of the feet on the ground, [B], by the sensor and the sites of the reward `foot_slip`."""
    if "foot_slip" not in env.reward_manager.active_terms:
        return None
    params: dict[str, Any] = env.reward_manager.get_term_cfg("foot_slip").params
    robot, sensor = env.scene[params["asset_cfg"].name], env.scene[params["sensor_name"]]
    speed = torch.linalg.vector_norm(robot.data.site_lin_vel_w[:, params["asset_cfg"].site_ids, :2], dim=-1)
    on_ground = sensor.data.found > 0
    slip: Tensor = (speed * on_ground).sum(-1) / on_ground.sum(-1).clamp_min(1)
    return slip
