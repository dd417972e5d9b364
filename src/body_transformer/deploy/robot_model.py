"""The robot's MuJoCo model as one file that travels with an exported policy.

Bodies keep their compiled masses, so shapes that cannot collide are left out. A mesh that can collide is replaced by
its convex hull, which is the shape that MuJoCo collides with, and is written into the file. No other file is needed,
and masses, joints and contacts are those of the original model. Motors, sensors and cameras are left out: the contract
describes motors and measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import mujoco
import numpy as np
from numpy.typing import NDArray

from ..body.description import read_file, read_urdf

Limits = tuple[float, float]


def portable(robot: Path | mujoco.MjSpec) -> str:
    """Return the MJCF of a robot's physics, given its MJCF or URDF file or a specification, which stays as it is."""
    spec = _read(robot) if isinstance(robot, Path) else robot.copy()
    model = spec.compile()
    _fix_masses(spec, model)
    for element in (*spec.keys, *spec.sensors, *spec.actuators, *spec.cameras, *spec.lights, *spec.skins):
        spec.delete(element)
    kept = _keep_collisions(spec, model)
    for mesh in spec.meshes:
        if mesh.name not in kept:
            spec.delete(mesh)
    spec.compile()
    return _tidied(spec.to_xml())


def _read(robot: Path) -> mujoco.MjSpec:
    """Return the specification of a robot's file; the base of a URDF gets the free joint that a URDF cannot state."""
    spec = read_file(str(robot))
    spec.compiler.fusestatic = False  # MuJoCo 3.11 loses the places of shapes on the links that it merges
    if read_urdf({"path": str(robot)}, robot.name).floats:
        spec.worldbody.first_body().add_freejoint()
    return spec


def model_name(xml: str) -> str:
    """Return the name of a model, such as `go1`."""
    return ElementTree.fromstring(xml).get("model", "")


def _fix_masses(spec: mujoco.MjSpec, model: mujoco.MjModel) -> None:
    """Write each body's compiled mass and inertia into the specification, where some follow from shapes."""
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    spec.compiler.boundmass = spec.compiler.boundinertia = 0.0
    for body in spec.bodies[1:]:
        body.explicitinertial = True
        body.mass, body.ipos, body.iquat = model.body_mass[body.id], model.body_ipos[body.id], model.body_iquat[body.id]
        body.inertia, body.fullinertia = model.body_inertia[body.id], [np.nan] * 6


def _keep_collisions(spec: mujoco.MjSpec, model: mujoco.MjModel) -> set[str]:
    """Delete shapes that cannot collide, replace meshes by their hulls, and return the names of the hulls."""
    hulls: dict[int, str] = {}
    paired = {name for pair in spec.pairs for name in (pair.geomname1, pair.geomname2)}
    for geom, number in [(geom, geom.id) for geom in spec.geoms]:  # deleting a shape renumbers the later ones
        if not (geom.contype or geom.conaffinity or geom.name in paired):
            spec.delete(geom)
            continue
        mesh = int(model.geom_dataid[number])
        if model.geom_type[number] == mujoco.mjtGeom.mjGEOM_MESH:
            if mesh not in hulls:
                hulls[mesh] = f"hull{mesh}"
                spec.add_mesh(name=hulls[mesh], uservert=_hull(model, mesh).ravel())
            geom.meshname = hulls[mesh]
    return set(hulls.values())


def _hull(model: mujoco.MjModel, mesh: int) -> NDArray[np.float64]:
    """Return the vertices [V, 3] of a mesh's convex hull, in the coordinates of the mesh's file."""
    start = model.mesh_vertadr[mesh]
    vertices = model.mesh_vert[start : start + model.mesh_vertnum[mesh]]
    graph = model.mesh_graphadr[mesh]
    if graph >= 0:
        count = model.mesh_graph[graph]
        on_hull = model.mesh_graph[graph + 2 + count : graph + 2 + 2 * count]
        vertices = vertices[np.sort(on_hull)]  # MuJoCo prefers earlier vertices as points of contact
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, model.mesh_quat[mesh])
    placed: NDArray[np.float64] = vertices @ rotation.reshape(3, 3).T + model.mesh_pos[mesh]
    return placed


def _tidied(xml: str) -> str:
    """Remove materials and textures, and name the classes of defaults that have no name.

    MuJoCo writes classes without a name where models were attached, and refuses to read them.
    """
    root = ElementTree.fromstring(xml)
    for asset in root.iterfind("asset"):
        for element in (*asset.iterfind("material"), *asset.iterfind("texture")):
            asset.remove(element)
    for element in root.iter():
        element.attrib.pop("material", None)
    for number, default in enumerate(root.iterfind("./default//default")):
        default.attrib.setdefault("class", f"attached{number}")
    return ElementTree.tostring(root, encoding="unicode") + "\n"


# -- limits ------------------------------------------------------------------------------------------------------------


def robot_limits(robot: Path | mujoco.MjSpec, joints: Sequence[str]) -> tuple[tuple[Limits, ...], tuple[float, ...]]:
    """Return position limits (low, high) and torque limits of a robot's file or specification; infinite without one."""
    model = (read_file(str(robot)) if isinstance(robot, Path) else robot).compile()
    positions, torques = [], []
    for name in joints:
        joint = model.joint(name)
        low, high = joint.range.tolist() if model.jnt_limited[joint.id] else (-math.inf, math.inf)
        positions.append((float(low), float(high)))
        is_here = (model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT) & (model.actuator_trnid[:, 0] == joint.id)
        motors = sum(_strength(model, motor) for motor in is_here.nonzero()[0]) or math.inf
        own = float(model.jnt_actfrcrange[joint.id, 1]) if model.jnt_actfrclimited[joint.id] else math.inf
        torques.append(min(motors, own))
    return tuple(positions), tuple(torques)


def driven_joints(robot: Path | mujoco.MjSpec, actuators: Sequence[str]) -> dict[str, str]:
    """Return actuator -> the joint that it drives; an actuator of a tendon, site or body is an error."""
    spec = read_file(str(robot)) if isinstance(robot, Path) else robot
    joints = {
        actuator.name or f"actuator_{k}": actuator.target
        for k, actuator in enumerate(spec.actuators)
        if actuator.trntype in (mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT)
    }
    without = [name for name in actuators if name not in joints]
    if without:
        raise ValueError(f"an experiment with a deploy section needs a joint for every action; {without[0]!r} has none")
    return {name: joints[name] for name in actuators}


def _strength(model: Any, motor: int) -> float:
    """Return the motor's largest torque in Nm: gear x the smaller of its control and force limits.

    The control of a position or velocity servo is not a torque.
    """
    is_servo = model.actuator_biastype[motor] != mujoco.mjtBias.mjBIAS_NONE
    control = math.inf
    if model.actuator_ctrllimited[motor] and not is_servo:
        control = model.actuator_ctrlrange[motor, 1] * model.actuator_gainprm[motor, 0]
    force = model.actuator_forcerange[motor, 1] if model.actuator_forcelimited[motor] else math.inf
    return float(abs(model.actuator_gear[motor, 0]) * min(control, force))
