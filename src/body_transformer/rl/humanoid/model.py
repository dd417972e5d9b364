"""Bodies of the humanoid tasks as MjSpecs, their contact sensors, and their physics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import mujoco
from mjlab.entity import EntityCfg
from mjlab.scene import SceneCfg
from mjlab.sensor import ContactMatch, ContactSensorCfg
from mjlab.sim import SimulationCfg

from ... import robots
from ...experiment import load_experiment
from ..envs.mjlab import physics

EXPERIMENT = load_experiment("humanoid-mod")
"""Terms of the humanoid tasks: order, sizes and owners."""
_OWNERS = {term.name: term.of for term in EXPERIMENT.obs}
BODIES, JOINTS = _OWNERS["contact_force"], _OWNERS["joint_pos"]
"""The order of contact forces; that of joint positions, joint velocities and actions."""

FEET = ("right_foot", "left_foot")
MAX_GEAR = 135.0
"""Nm, of the strongest motors (hip_y). The cost of torque is relative to it."""

PHYSICS_DT = 1 / 120
DECIMATION = 2
"""Physics steps per control step: control at 60 Hz."""
CONTROL_DT = PHYSICS_DT * DECIMATION

CONTACT = "contact"
"""Name of the contact sensor."""

BOARD_SIZE = (0.4, 0.6, 0.05)
CYLINDER_RADIUS, CYLINDER_LENGTH = 0.1, 0.4
DENSITY = 1000.0


def robot_spec() -> mujoco.MjSpec:
    """Return our humanoid without the time step of its file, which the task sets."""
    spec = mujoco.MjSpec.from_file(str(robots.path("humanoid")))
    spec.option.timestep = mujoco.MjSpec().option.timestep
    return spec


def scene(start_z: float, others: Mapping[str, EntityCfg] | None = None, **options: Any) -> SceneCfg:
    """Return a scene of the humanoid with a sensor of the net contact forces, world frame, that each body exerts.

    The humanoid is upright above the origin. `others` are further entities, and `options` those of SceneCfg.
    """
    bodies = ContactMatch(mode="body", pattern=BODIES, entity="robot")
    sensor = ContactSensorCfg(name=CONTACT, primary=bodies, fields=("force",), reduce="netforce")
    entities = {"robot": at_height(robot_spec, start_z), **(others or {})}
    return SceneCfg(env_spacing=0.0, entities=entities, sensors=(sensor,), **options)


def board_spec() -> mujoco.MjSpec:
    """Return the board: 12 kg, free."""
    spec = mujoco.MjSpec()
    body = spec.worldbody.add_body(name="board")
    body.add_freejoint(name="board")
    half = [size / 2 for size in BOARD_SIZE]
    body.add_geom(name="board", type=mujoco.mjtGeom.mjGEOM_BOX, size=half, density=DENSITY, rgba=[0.5, 0.35, 0.2, 1])
    return spec


def cylinder_spec() -> mujoco.MjSpec:
    """Return the cylinder under the board: 12.57 kg, axis along x, free.

    It is a capsule with the mass and inertia of the cylinder, and its round ends lie outside the board. MuJoCo Warp
    finds only one contact between a cylinder and a box, so the board would sink in. With a capsule it finds two.
    """
    mass = DENSITY * math.pi * CYLINDER_RADIUS**2 * CYLINDER_LENGTH
    along = mass * CYLINDER_RADIUS**2 / 2
    across = mass * (3 * CYLINDER_RADIUS**2 + CYLINDER_LENGTH**2) / 12
    spec = mujoco.MjSpec()
    body = spec.worldbody.add_body(name="cylinder", mass=mass, inertia=[along, across, across], explicitinertial=True)
    body.add_freejoint(name="cylinder")
    half = CYLINDER_LENGTH / 2
    body.add_geom(
        name="cylinder",
        type=mujoco.mjtGeom.mjGEOM_CAPSULE,
        fromto=[-half, 0, 0, half, 0, 0],
        size=[CYLINDER_RADIUS, 0, 0],
        rgba=[0.3, 0.35, 0.5, 1],
    )
    return spec


def at_height(spec_fn: Callable[[], mujoco.MjSpec], z: float) -> EntityCfg:
    """Return a free body above the origin at height `z`, with only the motors of its model."""
    return EntityCfg(spec_fn=spec_fn, init_state=EntityCfg.InitialStateCfg(pos=(0.0, 0.0, z)))


def simulation(max_contacts: int, max_constraints: int) -> SimulationCfg:
    """Return 120 Hz physics with room for these contacts and constraint rows per world."""
    # the board's 39 degrees of freedom would otherwise select the slower sparse Jacobian
    return physics(PHYSICS_DT, max_contacts, max_constraints, jacobian="dense")
