"""The humanoid with a fixed torso: MuJoCo's model and its constants."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from .... import robots

CONTROL_HZ = 50
"""Actions per second, as usual for robots of this size."""
PHYSICS_STEPS = 4
"""Simulation steps per action: at 200 Hz even the lightest joint, an ankle, is far from unstable."""
MAX_DAMPING = 0.2
"""Nm s/rad. The model file's value of 5 alone would hold the limbs still and hide wrong torques."""
ARMATURE = 0.03
"""kg m², three times the model file's value, with which small torque errors would swing the light ankles too far."""
HANDS = ("right_hand", "left_hand")
"""The bodies that carry the loads."""

TORQUES = {
    "abdomen_z": 32.0,
    "abdomen_y": 44.0,
    "abdomen_x": 37.0,
    "hip_x": 12.5,
    "hip_z": 10.0,
    "hip_y": 17.0,
    "knee": 6.0,
    "ankle_y": 1.0,
    "ankle_x": 1.0,
    "shoulder1": 6.7,
    "shoulder2": 6.7,
    "elbow": 3.4,
}
"""Torque of an action of 1, in Nm: about the standard deviation of the expert's torque in that joint. All joints then
have equal weight in a mean squared error, and actions have the scale of a network's outputs. (The gears of the model
file are for a standing humanoid, and too weak at the waist of one that hangs by the torso.)"""
MAX_ACTION = 6.0
"""Actions are clipped to ±6. The expert's are smaller, even at 90 degrees and with full loads."""


@lru_cache(maxsize=1)
def pinned_model() -> Any:
    """Return the shipped humanoid as a `mujoco.MjModel` with a fixed torso, without contacts and limits.

    The model is shared, so copy it before changing it.
    """
    spec = mujoco.MjSpec.from_file(str(robots.path("humanoid")))
    spec.delete(spec.joint("root"))
    for joint in spec.joints:
        joint.damping = np.minimum(joint.damping, MAX_DAMPING)
        joint.armature = ARMATURE
    for motor in spec.actuators:
        motor.gear[0] = TORQUES[_kind(motor.target)]
        motor.ctrlrange = (-MAX_ACTION, MAX_ACTION)
    spec.option.timestep = 1 / (CONTROL_HZ * PHYSICS_STEPS)
    off = mujoco.mjtDisableBit
    # With torques, gravity and inertia alone, the inverse dynamics is exact. Implicit damping would change the
    # equations of motion that it inverts.
    spec.option.disableflags = int(off.mjDSBL_CONTACT | off.mjDSBL_LIMIT | off.mjDSBL_CONSTRAINT | off.mjDSBL_EULERDAMP)
    return spec.compile()


def joint_names() -> list[str]:
    """Return the joints in the model's order."""
    model = pinned_model()
    return [model.joint(k).name for k in range(model.njnt)]


@lru_cache(maxsize=1)
def actuator_joint_ids() -> npt.NDArray[np.int64]:
    """Return the joint of each actuator, [A]: MuJoCo takes controls in the order of actuators."""
    ids: npt.NDArray[np.int64] = pinned_model().actuator_trnid[:, 0].astype(np.int64)
    return ids


@lru_cache(maxsize=1)
def torque_scale() -> npt.NDArray[np.float64]:
    """Return the torque of an action of 1 per joint, [J] in Nm."""
    return np.array([TORQUES[_kind(name)] for name in joint_names()])


def _kind(joint: str) -> str:
    return joint.removeprefix("right_").removeprefix("left_")
