"""The walker's position servos: controls that make its joints follow a motion."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
import torch
from torch import Tensor

from .model import CONTROL_DT, FILTER_S, is_finger, walker, walker_spec

LEAD_S = FILTER_S + CONTROL_DT / 2
"""Lag of a joint behind its control: the activation's filter, and half of the control step that holds a control."""


@dataclass(frozen=True)
class Servo:
    """Constants of the 56 actuators, each on one joint: force = gain x activation + offset - stiffness x angle."""

    joints: tuple[str, ...]
    """Joint of each actuator; observations and actions have this order."""
    file_order: tuple[int, ...]
    """Place of each of these joints in a motion file."""
    stiffness: Tensor
    """[56], Nm/rad."""
    gain: Tensor
    """[56], Nm per unit of activation."""
    offset: Tensor
    """[56], Nm."""
    spring: Tensor
    """[56]: passive spring of the joint, relative to the servo's stiffness; up to 2.5 at clavicles and back."""
    spring_rest: Tensor
    """[56], rad: angle at which the spring is at rest."""
    damping_s: Tensor
    """[56], s: passive damping of the joint, relative to the servo's stiffness."""
    is_finger: Tensor
    """[56, bool]: joints of fingers and thumbs."""

    @classmethod
    def of_walker(cls, device: torch.device | str, dtype: torch.dtype) -> Servo:
        """Read the constants from dm_control's walker, with its fingers."""
        model = walker_spec(freeze_fingers=False).compile()
        joint_ids = model.actuator_trnid[:, 0]
        if (model.actuator_gear[:, 0] != 1).any() or (model.actuator_trntype != mujoco.mjtTrn.mjTRN_JOINT).any():
            raise ValueError("each actuator of the walker must act on one joint, without a gear")
        in_file = [joint.name for joint in walker().mocap_joints]
        joints = tuple(model.joint(int(joint)).name for joint in joint_ids)
        stiffness = -model.actuator_biasprm[:, 1]
        columns = {
            "stiffness": stiffness,
            "gain": model.actuator_gainprm[:, 0],
            "offset": model.actuator_biasprm[:, 0],
            "spring": model.jnt_stiffness[joint_ids] / stiffness,
            "spring_rest": model.qpos_spring[model.jnt_qposadr[joint_ids]],
            "damping_s": model.dof_damping[model.jnt_dofadr[joint_ids]] / stiffness,
        }
        return cls(
            joints,
            tuple(in_file.index(joint) for joint in joints),
            is_finger=torch.tensor([is_finger(joint) for joint in joints], device=device),
            **{name: torch.tensor(np.array(column), device=device, dtype=dtype) for name, column in columns.items()},
        )

    def control(self, joint_pos: Tensor, joint_vel: Tensor, lead_s: float = LEAD_S) -> Tensor:
        """Return controls [B, 56] in [-1, 1] that move joints through this position with this velocity, [B, 56] each.

        They compensate springs and damping. Without a lead they are the activations that hold the motion.
        """
        target = joint_pos + self.spring * (joint_pos - self.spring_rest) + (self.damping_s + lead_s) * joint_vel
        return self.uncompensated(target)

    def corrected(self, joint_pos: Tensor, joint_vel: Tensor, correction: Tensor) -> Tensor:
        """Return the final controls [B, 56] of a step that leads to this frame; fingers and thumbs only follow."""
        follow = self.control(joint_pos, joint_vel)
        return torch.where(self.is_finger, follow, (follow + correction).clamp(-1.0, 1.0))

    def uncompensated(self, target: Tensor) -> Tensor:
        """Return controls whose servos, without springs and damping, would rest at these angles [B, 56]."""
        return ((self.stiffness * target - self.offset) / self.gain).clamp(-1.0, 1.0)
