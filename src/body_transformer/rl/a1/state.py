"""The state of B A1s after a control step, which the terms of their tasks read."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
from torch import Tensor
from torch import bool as boolean

from ..envs.world import FreeBody, joint_ranges
from .model import DEFAULT_POSE, JOINTS
from .parameters import A1Parameters


@dataclass(frozen=True)
class A1Joints:
    """Constants of the 12 joints."""

    default: Tensor
    """[12], rad: the default pose."""
    low: Tensor
    """[12], rad, of the range."""
    high: Tensor
    """[12], rad."""
    max_torque: Tensor
    """[12], Nm, of the motor."""

    @classmethod
    def of(cls, model: mujoco.MjModel, like: Tensor) -> A1Joints:
        """Read them from the compiled scene."""
        low, high = joint_ranges(model, JOINTS)
        torque = [model.actuator(f"robot/{name}").ctrlrange[1] for name in JOINTS]
        return cls(*(like.new_tensor(values) for values in (DEFAULT_POSE, low, high, torque)))


@dataclass(frozen=True)
class A1State:
    """B environments after the physics of a control step; joints are ordered as JOINTS, feet as FEET."""

    root: FreeBody
    """The trunk."""
    joints: A1Joints
    parameters: A1Parameters
    previous_xy: Tensor
    """[B, 2], m, world: position of the trunk at the last action."""
    joint_pos: Tensor
    """[B, 12], rad."""
    joint_vel: Tensor
    """[B, 12], rad/s."""
    action: Tensor
    """[B, 12]: the last action, unbounded."""
    previous_action: Tensor
    """[B, 12]: the action before it."""
    older_action: Tensor
    """[B, 12]: the action before these two."""
    command: Tensor
    """[B, 3]: m/s ahead, m/s to the left, rad/s to the left."""
    wanted_heading: Tensor
    """[B], rad: the heading when the command began, turned as commanded since."""
    torque: Tensor
    """[B, 12], Nm, of the motors in the last physics step."""
    energy: Tensor
    """[B]: sum over the physics steps of a control step, and over joints, of (power / W)²."""
    outside: Tensor
    """[B]: number of joints outside the middle half of their range, summed over the physics steps of a control step."""
    overloaded: Tensor
    """[B, bool]: a motor gave more than TORQUE_LIMIT in one of the physics steps."""
    base_force: Tensor
    """[B], N: contact force on the trunk."""
    on_ground: Tensor
    """[B, 4, bool]: feet in contact."""
    air_time: Tensor
    """[B, 4], s since each foot was last on the ground."""
    landed: Tensor
    """[B, 4, bool]: feet that came back to the ground in this step."""
    flight: Tensor
    """[B, 4], s in the air, this step included; of a foot that landed, all of it."""
    foot_pos: Tensor
    """[B, 4, 3], m, world: centres of the feet."""
    foot_speed: Tensor
    """[B, 4], m/s: mean horizontal speed of each foot in this step."""
    foot_height: Tensor
    """[B, 4], m: height of each foot above the ground below it."""
    stayed: Tensor
    """[B, 4, bool]: feet in contact after this step and the step before; their speed is slip."""
    joint_mean: Tensor
    """[B, 12], rad: running mean of the joint angles."""
    joint_square: Tensor
    """[B, 12], rad²: running mean of their squares."""

    @classmethod
    def zeros(cls, root: FreeBody, joints: A1Joints, parameters: A1Parameters) -> A1State:
        """Return a state with this trunk in which everything else is zero."""
        num_envs, like = len(root.pos), root.pos
        of_joints = ("joint_pos", "joint_vel", "action", "previous_action", "older_action", "torque")
        sizes: dict[str, tuple[int, ...]] = {"previous_xy": (2,), "command": (3,), "foot_pos": (4, 3)}
        sizes |= dict.fromkeys((*of_joints, "joint_mean", "joint_square"), (12,))
        sizes |= dict.fromkeys(("air_time", "flight", "foot_speed", "foot_height"), (4,))
        sizes |= dict.fromkeys(("energy", "outside", "base_force", "wanted_heading"), ())
        made = {name: like.new_zeros(num_envs, *size) for name, size in sizes.items()}
        made |= {name: like.new_zeros(num_envs, 4, dtype=boolean) for name in ("on_ground", "landed", "stayed")}
        made["overloaded"] = like.new_zeros(num_envs, dtype=boolean)
        return cls(root, joints, parameters, **made)
