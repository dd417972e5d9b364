"""The humanoid held at the torso: MuJoCo's model and its constants."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from ... import robots

CONTROL_HZ = 50
"""Actions a second, as robots of this size are run."""
PHYSICS_STEPS = 4
"""Simulation steps an action: 200 Hz, at which the lightest joint, an ankle, is still far from unstable."""
MAX_DAMPING = 0.2
"""Nm s/rad. The model's 5 would hold the limbs by itself; with little, a torque that is wrong shows."""
ARMATURE = 0.03
"""kg m². Three times the model's: without it the ankles are so light that a torque a little wrong throws them."""
HANDS = ("right_hand", "left_hand")
"""They carry the payloads."""

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
"""Nm that an action of 1 gives: about the standard deviation of the expert's torque in that joint. So all joints weigh
alike in a mean square, and actions are of the size that a network's outputs are. (The model's own gears are for a
humanoid that stands, and too weak at the waist of one that hangs by the torso.)"""
MAX_ACTION = 6.0
"""Beyond ±6 actions are cut; the expert stays within, at 90 degrees and with full hands too."""


def pinned_spec() -> Any:
    """The shipped humanoid as a `mujoco.MjSpec`, its torso fixed in the world, contacts and limits off."""
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
    # Nothing but torques, gravity and inertia: the inverse dynamics then is exact. Implicit damping would change the
    # equations of motion from those that it inverts.
    spec.option.disableflags = int(off.mjDSBL_CONTACT | off.mjDSBL_LIMIT | off.mjDSBL_CONSTRAINT | off.mjDSBL_EULERDAMP)
    return spec


@lru_cache(maxsize=1)
def pinned_model() -> Any:
    """The compiled `mujoco.MjModel`; shared, so copy it before changing it."""
    return pinned_spec().compile()


def joint_names() -> list[str]:
    """In the model's order."""
    model = pinned_model()
    return [model.joint(k).name for k in range(model.njnt)]


@lru_cache(maxsize=1)
def actuator_joint_ids() -> npt.NDArray[np.int64]:
    """[A] the joint that each actuator drives: MuJoCo takes controls in the order of actuators."""
    ids: npt.NDArray[np.int64] = pinned_model().actuator_trnid[:, 0].astype(np.int64)
    return ids


@lru_cache(maxsize=1)
def torque_scale() -> npt.NDArray[np.float64]:
    """[J] Nm that an action of 1 gives, in the order of joints."""
    return np.array([TORQUES[_kind(name)] for name in joint_names()])


def _kind(joint: str) -> str:
    return joint.removeprefix("right_").removeprefix("left_")
