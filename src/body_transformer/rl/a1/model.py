"""The A1 as the task simulates it: joints and their order, gains, contact sensors."""

from __future__ import annotations

import mujoco
from mjlab.entity import EntityCfg
from mjlab.sensor import ContactMatch, ContactSensorCfg

from ... import robots

LEGS = ("FL", "FR", "RL", "RR")
PARTS = ("hip", "thigh", "calf")
JOINTS: tuple[str, ...] = tuple(f"{leg}_{part}_joint" for leg in LEGS for part in PARTS)
"""The order of joint positions, velocities, actions and motor strengths. The model's own is FR, FL, RR, RL."""
FEET: tuple[str, ...] = tuple(f"{leg}_foot" for leg in LEGS)

DEFAULT_POSE: tuple[float, ...] = tuple(
    angle for leg in LEGS for angle in (0.1 if leg.endswith("L") else -0.1, 0.8 if leg.startswith("F") else 1.0, -1.5)
)
"""rad, the joint targets of the action 0."""
ACTION_SCALE = 0.5
KP, KD = 50.0, 1.0
"""Nm/rad, Nm s/rad."""
TORQUE_LIMIT = 25.0
"""Nm: bound of the torque that a target asks for when it is set; larger torques are punished."""

PHYSICS_DT = 0.005
DECIMATION = 4
"""Physics steps per control step: control at 50 Hz."""
CONTROL_DT = PHYSICS_DT * DECIMATION

BASE = "trunk"
FOOT_CONTACT, BASE_CONTACT = "foot_contact", "base_contact"
"""Names of the contact sensors."""


def robot_spec() -> mujoco.MjSpec:
    """Return our A1. It touches only the ground, because all contacts are those of geom pairs (see ground.py)."""
    spec = mujoco.MjSpec.from_file(str(robots.path("a1")))
    spec.option.timestep = mujoco.MjSpec().option.timestep  # the task's, not the file's
    for geom in spec.geoms:
        geom.contype = geom.conaffinity = 0
    for key in spec.keys:
        spec.delete(key)  # poses come from the task
    return spec


def robot(start_z: float) -> EntityCfg:
    """Return the A1 in its default pose at the origin, with the motors of its file: mjlab adds none."""
    pose = dict(zip(JOINTS, DEFAULT_POSE, strict=True))
    return EntityCfg(spec_fn=robot_spec, init_state=EntityCfg.InitialStateCfg(pos=(0.0, 0.0, start_z), joint_pos=pose))


def contact_sensors() -> tuple[ContactSensorCfg, ...]:
    """Return sensors of the net contact forces, world frame, that each foot and the trunk exert."""
    feet = ContactMatch(mode="geom", pattern=FEET, entity="robot")
    base = ContactMatch(mode="body", pattern=(BASE,), entity="robot")
    return (
        ContactSensorCfg(name=FOOT_CONTACT, primary=feet, fields=("force",), reduce="netforce"),
        ContactSensorCfg(name=BASE_CONTACT, primary=base, fields=("force",), reduce="netforce"),
    )
