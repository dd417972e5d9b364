"""dm_control's CMU humanoid (V2020) as an MjSpec, and the physics that it is trained with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import mujoco
from mjlab.entity import EntityCfg
from mjlab.sim import MujocoCfg, SimulationCfg

from ...errors import import_extra

PHYSICS_DT = 0.005
DECIMATION = 6
"""Physics steps per control step: 0.03 s, the time between frames of a clip."""
CONTROL_DT = PHYSICS_DT * DECIMATION
FILTER_S = 0.03
"""Time constant of the actuators' activation."""
TORQUE_SENSORS = ("sensor_torque_lhumerus", "sensor_torque_rhumerus")
TOUCH_SENSORS = tuple(
    f"sensor_touch_{place}"
    for place in (
        *("lhand", "lfingers", "lthumb", "rhand", "rfingers", "rthumb"),
        *("ltoes", "rtoes", "rfoot", "lfoot"),
    )
)
"""Sensors in the order of the observation."""
Cone = Literal["pyramidal", "elliptic"]


def walker() -> Any:
    """Return a new walker of dm_control."""
    with _without_opengl():
        walkers = import_extra("dm_control.locomotion.walkers.cmu_humanoid", "imitation")
    return walkers.CMUHumanoidPositionControlledV2020()


@contextmanager
def _without_opengl() -> Iterator[None]:
    """Import dm_control without OpenGL, which a machine may lack; mjlab's MUJOCO_GL would require it."""
    before = os.environ.get("MUJOCO_GL")
    os.environ["MUJOCO_GL"] = "disabled"
    try:
        yield
    finally:
        if before is None:
            del os.environ["MUJOCO_GL"]
        else:
            os.environ["MUJOCO_GL"] = before


def is_finger(joint: str) -> bool:
    """Return whether this joint belongs to fingers or a thumb, which clips hold at 0."""
    return "fingers" in joint or "thumb" in joint


def walker_spec(freeze_fingers: bool) -> mujoco.MjSpec:
    """Return the walker with a free root and without the sensors that the task does not observe.

    dm_control hangs the root below a free body of 10 mg; here the root itself is free. With `freeze_fingers`, the six
    joints of fingers and thumbs are missing: 56 degrees of freedom, for which MuJoCo Warp has a dense solver.
    """
    spec = mujoco.MjSpec.from_string(walker().mjcf_model.to_xml_string())
    spec.njmax = spec.nconmax = -1  # the simulation sets these sizes
    root = spec.body("root")
    root.add_freejoint(name="root")
    root.pos = [0.0, 0.0, 2.0]  # until the first reset; on the ground it would have more contacts than fit
    for sensor in list(spec.sensors):
        if sensor.name not in (*TORQUE_SENSORS, *TOUCH_SENSORS):
            spec.delete(sensor)
    for seen in (*spec.cameras, *spec.lights):
        spec.delete(seen)
    if freeze_fingers:
        for part in (*spec.actuators, *spec.joints):
            if is_finger(part.name):
                spec.delete(part)
    return spec


def robot(freeze_fingers: bool) -> EntityCfg:
    """Return the walker with only the actuators of its file."""
    return EntityCfg(spec_fn=lambda: walker_spec(freeze_fingers))


def simulation(cone: Cone, iterations: int, ls_iterations: int, dense: bool) -> SimulationCfg:
    """Return dm_control's physics with another contact solver: MuJoCo Warp has no noslip iterations."""
    solver = MujocoCfg(
        timestep=PHYSICS_DT,
        integrator="euler",
        cone=cone,
        jacobian="dense" if dense else "sparse",
        iterations=iterations,
        ls_iterations=ls_iterations,
    )
    return SimulationCfg(nconmax=48, njmax=128, mujoco=solver)
