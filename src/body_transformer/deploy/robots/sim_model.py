"""The robot to simulate: the model that travels with an exported policy, or the shipped A1."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from ... import robots
from ...body.description import read_file
from ...body.outside import check_inside
from ...policy_folder import ROBOT, find_policy
from ..contract import Contract
from ..control import Control
from ..limits import A1
from ..robot_model import robot_limits
from ..runtime_config import control_of

FLOOR = "sim_floor"
MAX_HEIGHT_M = 10.0
"""No robot's trunk stands higher."""
MAX_TILT_RAD = 1.2
"""A robot that is rolled or pitched further has fallen: the termination of mjlab's walking tasks, 70 degrees."""


@dataclass(frozen=True)
class SimModel:
    """A robot on a flat floor, and the numbers that its file does not have."""

    spec: mujoco.MjSpec
    trunk: str
    """The root body; a robot whose trunk touches the floor has fallen."""
    joints: tuple[str, ...]
    """In the robot's order."""
    pose: tuple[float, ...]
    """[J], rad: a standing robot holds it until the first command."""
    kp: tuple[float, ...]
    """[J], Nm/rad: the gains with which it stands."""
    kd: tuple[float, ...]
    """[J], Nm s/rad."""
    torque: tuple[float, ...]
    """[J], Nm: the limits of the motors."""
    is_free: bool
    """Whether the trunk moves freely; otherwise it is fixed to the world."""
    height_m: float
    """Height of the trunk of a standing robot."""
    lying: tuple[float, ...] = ()
    """Height and pose of a lying robot; empty: it sinks down with damped joints."""
    max_tilt_rad: tuple[float, float] = (MAX_TILT_RAD, MAX_TILT_RAD)
    """A robot that is rolled or pitched further has fallen."""
    min_height_m: float = 0.0
    """A robot whose trunk is lower has fallen."""


def sim_model(policy: Path | None = None) -> SimModel:
    """Return the robot of an exported policy; without a policy, and for one of the A1, the shipped A1."""
    if policy is None:
        return _a1()
    contract = Contract.read(policy)
    if contract.hardware is A1:
        return _a1()
    file, control = find_policy(policy).path / ROBOT, control_of(contract)
    if not file.is_file():
        raise FileNotFoundError(f"{str(file)!r} is missing: export the policy again")
    spec = _on_floor(file)
    model = spec.compile()
    trunk = model.body(model.body_rootid[model.joint(control.joints[0]).bodyid[0]])
    is_free = bool(trunk.jntnum[0] and model.jnt_type[trunk.jntadr[0]] == mujoco.mjtJoint.mjJNT_FREE)
    height = _standing_height(model, trunk, control) if is_free else 0.0
    return SimModel(
        spec,
        trunk.name,
        control.joints,
        control.default_pose,
        control.kp,
        control.kd,
        control.torque_limits,
        is_free,
        height,
        min_height_m=height / 2,
    )


def _a1() -> SimModel:
    """Return the shipped A1. It has fallen where the paper's training ends an episode."""
    spec = _on_floor(robots.path("a1"))
    (home,) = (list(key.qpos) for key in spec.keys)
    joints = tuple(motor.name for motor in spec.actuators)
    return SimModel(
        spec,
        "trunk",
        joints,
        pose=tuple(home[7:]),
        kp=(100.0,) * len(joints),
        kd=(2.0,) * len(joints),
        torque=robot_limits(spec, joints)[1],
        is_free=True,
        height_m=home[2],
        lying=(0.09, *(0.0, 1.25, -2.65) * 4),  # legs folded, trunk on the floor
        max_tilt_rad=(0.8, 1.6),
        min_height_m=0.15,
    )


def _on_floor(file: Path) -> mujoco.MjSpec:
    """Return a robot's model with a floor, unless it has one."""
    check_inside(file, repr(str(file)), assets=True)
    spec = read_file(str(file))
    if not any(geom.type == mujoco.mjtGeom.mjGEOM_PLANE for geom in spec.worldbody.geoms):
        spec.worldbody.add_geom(name=FLOOR, type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0.0, 0.0, 1.0])
    return spec


def _standing_height(model: mujoco.MjModel, trunk: Any, control: Control) -> float:
    """Return the height of the trunk at which the robot touches the floor in its default pose."""
    data, place = mujoco.MjData(model), model.jnt_qposadr[trunk.jntadr[0]]
    for name, angle in zip(control.joints, control.default_pose, strict=True):
        data.joint(name).qpos[0] = angle
    data.qpos[place + 3 : place + 7] = 1.0, 0.0, 0.0, 0.0
    floor = np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE)
    low, high = 0.0, MAX_HEIGHT_M
    while high - low > 1e-5:
        data.qpos[place + 2] = middle = (low + high) / 2
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        low, high = (middle, high) if np.isin(data.contact.geom, floor).any() else (low, middle)
    return high
