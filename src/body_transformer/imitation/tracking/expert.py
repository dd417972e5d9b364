"""The expert: computed torque. It knows the body exactly, so its torques are exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np

from .clips import Doubles
from .model import MAX_ACTION, torque_scale

FEEDBACK_RAD_S = 12.0
"""How quickly errors are made good, critically damped. Slow beside the 314 rad/s of the control, so that holding an
action for a step does no harm."""


def wanted_acc(pos_error: Doubles, vel_error: Doubles, reference_acc: Doubles) -> Doubles:
    """The reference's acceleration and what brings the body back to it, [B, J]."""
    return reference_acc + FEEDBACK_RAD_S**2 * pos_error + 2 * FEEDBACK_RAD_S * vel_error


def expert_actions(models: Sequence[Any], data: Any, pos: Doubles, vel: Doubles, acc: Doubles) -> Doubles:
    """[B, J] the actions that give each body the acceleration `acc` in its state; `data` is overwritten."""
    torques = np.empty_like(pos)
    for k, model in enumerate(models):
        data.qpos[:], data.qvel[:], data.qacc[:] = pos[k], vel[k], acc[k]
        mujoco.mj_inverse(model, data)
        torques[k] = data.qfrc_inverse
    return np.clip(torques / torque_scale(), -MAX_ACTION, MAX_ACTION)
