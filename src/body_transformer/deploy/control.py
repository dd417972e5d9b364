"""From an experiment: where a robot's observation comes from, and what becomes of its actions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import robots
from ..body.layout import Layout, Term
from ..errors import unknown
from ..experiment import Experiment
from .config import DeployConfig, ObsSource, PerJoint, per_joint
from .contract import Control, ObsTerm, TorqueClip

Numbers = Mapping[str, tuple[float, ...]]
"""Name -> one number a joint."""
Limits = tuple[float, float]


def control(experiment: Experiment, layout: Layout, bound: float | None = None) -> Control | None:
    """None where no robot is behind the experiment. `bound`: no action of the policy is larger, both ways."""
    deploy = experiment.deploy
    if deploy is None:
        return None
    joints = _joints(experiment, layout)
    named = _named(experiment, deploy, joints)

    def each(value: PerJoint) -> tuple[float, ...]:
        return per_joint(value, joints, named)

    positions, torques = robot_limits(experiment, joints)
    return Control(
        kind=deploy.kind,
        hz=deploy.hz,
        joints=joints,
        scale=each(deploy.action_scale),
        offset=each(deploy.action_offset),
        clip=min((most for most in (deploy.action_clip, bound) if most is not None), default=None),
        torque_clip=_torque_clip(deploy, each),
        default_pose=each(deploy.default_pose),
        kp=each(deploy.kp),
        kd=each(deploy.kd),
        position_limits=positions,
        velocity_limits=(math.inf,) * len(joints) if deploy.velocity_limits is None else each(deploy.velocity_limits),
        torque_limits=torques,
        filter=deploy.filter,
        command=deploy.command,
    )


def _torque_clip(deploy: DeployConfig, each: Callable[[PerJoint], tuple[float, ...]]) -> TorqueClip | None:
    told = deploy.training
    return None if told is None or told.torque is None else TorqueClip(each(told.torque), each(told.kp), each(told.kd))


def training_gains(experiment: Experiment, layout: Layout) -> tuple[list[float] | None, list[float] | None]:
    """kp and kd of the training, where they are known."""
    deploy = experiment.deploy
    if deploy is None or deploy.training is None:
        return None, None
    joints = _joints(experiment, layout)
    named = _named(experiment, deploy, joints)
    kp, kd = (list(per_joint(value, joints, named)) for value in (deploy.training.kp, deploy.training.kd))
    return kp, kd


def obs_terms(layout: Layout, experiment: Experiment | None = None) -> tuple[ObsTerm, ...]:
    """The layout's terms, and where each comes from if the experiment says it."""
    deploy = None if experiment is None else experiment.deploy
    if experiment is None or deploy is None:
        return tuple(_unsourced(term) for term in layout.obs)
    names = [term.name for term in layout.obs]
    for name in deploy.obs:
        if name not in names:
            raise ValueError("deploy.obs: " + unknown("observation term", name, names))
    named = _named(experiment, deploy, _joints(experiment, layout))
    return tuple(
        _sourced(term, deploy.obs[term.name], named) if term.name in deploy.obs else _unsourced(term)
        for term in layout.obs
    )


def robot_limits(experiment: Experiment, joints: Sequence[str]) -> tuple[tuple[Limits, ...], tuple[float, ...]]:
    """Positions (low, high) and torques of these joints in the robot's file; infinite where it sets no limit."""
    import mujoco

    model = mujoco.MjModel.from_xml_path(str(robots.path(experiment.robot.file)))
    positions, torques = [], []
    for name in joints:
        joint = model.joint(name)
        low, high = joint.range.tolist() if model.jnt_limited[joint.id] else (-math.inf, math.inf)
        positions.append((float(low), float(high)))
        torques.append(sum(_strength(model, motor) for motor in _motors(model, joint.id)) or math.inf)
    return tuple(positions), tuple(torques)


def _motors(model: Any, joint: int) -> list[int]:
    import mujoco

    at_joint = mujoco.mjtTrn.mjTRN_JOINT
    return [k for k in range(model.nu) if model.actuator_trntype[k] == at_joint and model.actuator_trnid[k, 0] == joint]


def _strength(model: Any, motor: int) -> float:
    """Nm: gear x the smaller of what it may be told and what it can give."""
    told = model.actuator_ctrlrange[motor, 1] if model.actuator_ctrllimited[motor] else math.inf
    given = model.actuator_forcerange[motor, 1] if model.actuator_forcelimited[motor] else math.inf
    return float(abs(model.actuator_gear[motor, 0]) * min(told, given))


def _named(experiment: Experiment, deploy: DeployConfig, joints: Sequence[str]) -> Numbers:
    positions, torques = robot_limits(experiment, joints)
    named = {
        "range_middle": tuple((low + high) / 2 for low, high in positions),
        "per_half_range": tuple(2 / (high - low) for low, high in positions),
        "torque_limits": torques,
    }
    return {"default_pose": per_joint(deploy.default_pose, joints, named), **named}


def _joints(experiment: Experiment, layout: Layout) -> tuple[str, ...]:
    joints = tuple(joint for term in layout.actions for joint in term.of if term.kind == "joints")
    if len(joints) != layout.action_dim:
        raise ValueError(f"experiment {experiment.name!r} has a deploy section, so that every action must be a joint's")
    return joints


def _unsourced(term: Term) -> ObsTerm:
    """Its steps may lie ahead, so that they are not called a history."""
    return ObsTerm(term.name, term.size, "", (0.0,) * term.size, (1.0,) * term.size, None)


def _sourced(term: Term, found: ObsSource, named: Numbers) -> ObsTerm:
    size = term.size // term.steps

    def each(value: PerJoint | tuple[float, ...]) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        return per_joint(value, term.of or ("",) * size, named)

    try:
        return ObsTerm(
            term.name, size, found.source, each(found.offset), each(found.scale), found.clip, history=term.steps
        )
    except ValueError as error:
        raise ValueError(f"deploy.obs.{term.name}: {error}") from None
