"""The `deploy` section of an experiment, and the contract's sections that `bot export` makes from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..body.layout import Layout, Term
from ..errors import listing, unknown
from ..schema import High, Low, shown
from .control import ContractTerm, Control, Environment, Filter, Kind, Source, TorqueClip

if TYPE_CHECKING:
    from mujoco import MjSpec

Named = Literal["default_pose", "range_middle", "per_half_range", "torque_limits"]
"""Numbers per joint that are given elsewhere: in this section, or in the robot's file."""
PerJoint = float | Named | Mapping[str, float]
"""One value for all joints, or values by name or by pattern ("*_hip_joint"); each joint must match one pattern."""
Numbers = Mapping[str, tuple[float, ...]]
"""Name -> one number per joint."""
Limits = tuple[float, float]
_DRIVEN = ("joints", "actuators")
"""Kinds of terms whose actions may have a joint each."""


@dataclass(frozen=True)
class ObsSource:
    """Computation of an observation term: clip((measured - offset) * scale)."""

    source: Source
    """The measured quantity."""
    offset: PerJoint | tuple[float, ...] = 0.0
    """A list has one number per entry."""
    scale: PerJoint | tuple[float, ...] = 1.0
    """A list has one number per entry."""
    clip: float | tuple[Low, High] | None = None
    """A symmetric bound, or (low, high), in which null means no bound."""


@dataclass(frozen=True)
class Training:
    """Gains of the motors during training, and the clip of their targets."""

    kp: PerJoint
    """Nm/rad."""
    kd: PerJoint
    """Nm s/rad."""
    torque: PerJoint | None = None
    """Nm; a target was clipped if these gains would have needed more torque at the measured state."""


@dataclass(frozen=True)
class DeployConfig:
    """The numbers between measurements and observations, and between actions and motors.

    Position and torque limits are those of the robot's file.
    """

    kind: Kind
    """Meaning of an action's target."""
    hz: float
    """Actions per second."""
    obs: Mapping[str, ObsSource]
    """Term -> its source. A term that is not listed exists only in the training environment."""
    action_scale: PerJoint = 1.0
    """target = offset + scale * action."""
    action_offset: PerJoint = 0.0
    """target = offset + scale * action."""
    action_clip: float | None = None
    """Symmetric bound on the action; at most 1 where the policy squashes its actions."""
    default_pose: PerJoint = 0.0
    """rad"""
    kp: PerJoint = 0.0
    """Nm/rad, on the robot."""
    kd: PerJoint = 0.0
    """Nm s/rad, on the robot."""
    velocity_limits: PerJoint | None = None
    """rad/s; None: no limit is known."""
    filter: Filter | None = None
    """Low-pass filter of the targets."""
    command: tuple[float, ...] = ()
    """Default command of the policy, if it takes one."""
    command_range: tuple[Limits, ...] | None = None
    """(low, high) of each entry of the command in the training; commands beyond it are refused."""
    imu: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Place of the observed linear velocity in the root body's frame, m."""
    training: Training | None = None
    """Gains of the training, if the robot's differ, and its torque clip."""


def per_joint(value: PerJoint, joints: Sequence[str], named: Mapping[str, Sequence[float]]) -> tuple[float, ...]:
    """Return one number per joint."""
    if isinstance(value, str):
        if value not in named:
            raise ValueError(f"{value!r} is not known here; have: {listing(named)}")
        return tuple(named[value])
    if not isinstance(value, Mapping):
        return (float(value),) * len(joints)
    matching = {joint: [pattern for pattern in value if fnmatchcase(joint, pattern)] for joint in joints}
    for joint, patterns in matching.items():
        if len(patterns) != 1:
            raise ValueError(
                f"joint {joint!r} must match one pattern of {shown(dict(value))}; it matches {len(patterns)}"
            )
    unused = set(value) - {pattern for patterns in matching.values() for pattern in patterns}
    if unused:
        raise ValueError(f"no joint matches {listing(sorted(unused))}; the joints are {listing(joints)}")
    return tuple(value[matching[joint][0]] for joint in joints)


# -- the contract's sections -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sections:
    """The parts of a contract that come from a `deploy` section."""

    obs: tuple[ContractTerm, ...]
    """The layout's terms with their sources."""
    control: Control | None = None
    training_kp: tuple[float, ...] | None = None
    training_kd: tuple[float, ...] | None = None
    environment: Environment = field(default_factory=Environment)
    """Facts of the environment of the training."""
    robot: str | None = None
    """MJCF of the robot's model that travels with the policy, from `robot_model.portable`."""


def contract_sections(
    deploy: DeployConfig, robot: Path | MjSpec, layout: Layout, bound: float | None = None
) -> Sections:
    """Return the contract's sections, given the robot's file or specification.

    `bound` is the largest action that the policy can give.
    """
    from .robot_model import model_name, portable, robot_limits  # needs MuJoCo

    joints = _joints(layout, robot)
    positions, torques = robot_limits(robot, joints)
    named = {
        "range_middle": tuple((low + high) / 2 for low, high in positions),
        "per_half_range": tuple(2 / (high - low) for low, high in positions),
        "torque_limits": torques,
    }
    named["default_pose"] = per_joint(deploy.default_pose, joints, named)
    each = partial(per_joint, joints=joints, named=named)
    training = deploy.training
    kp, kd = (None, None) if training is None else (each(training.kp), each(training.kd))
    torque_clip = None
    if training is not None and training.torque is not None:
        torque_clip = TorqueClip(each(training.torque), each(training.kp), each(training.kd))
    control = Control(
        kind=deploy.kind,
        hz=deploy.hz,
        joints=joints,
        scale=each(deploy.action_scale),
        offset=each(deploy.action_offset),
        clip=min((most for most in (deploy.action_clip, bound) if most is not None), default=None),
        torque_clip=torque_clip,
        default_pose=named["default_pose"],
        kp=each(deploy.kp),
        kd=each(deploy.kd),
        position_limits=positions,
        velocity_limits=(math.inf,) * len(joints) if deploy.velocity_limits is None else each(deploy.velocity_limits),
        torque_limits=torques,
        filter=deploy.filter,
        command=deploy.command,
    )
    names = [term.name for term in layout.obs]
    for name in deploy.obs:
        if name not in names:
            raise ValueError("deploy.obs: " + unknown("observation term", name, names))
    obs = (
        _sourced(term, deploy.obs[term.name], named) if term.name in deploy.obs else unsourced(term)
        for term in layout.obs
    )
    model = portable(robot)
    environment = Environment(model_name(model), deploy.imu, deploy.command_range)
    return Sections(tuple(obs), control, kp, kd, environment, model)


def unsourced(term: Term) -> ContractTerm:
    """Return a contract term without a source. Its steps may lie in the future, so they are not a history."""
    return ContractTerm(term.name, term.size, "", (0.0,) * term.size, (1.0,) * term.size, None)


def _joints(layout: Layout, robot: Path | MjSpec) -> tuple[str, ...]:
    """Return the joint of each action: its own, or the one that its actuator drives."""
    from .robot_model import driven_joints

    actuated = [name for term in layout.actions for name in term.of if term.kind == "actuators"]
    driven = driven_joints(robot, actuated) if actuated else {}
    joints = tuple(driven.get(name, name) for term in layout.actions for name in term.of if term.kind in _DRIVEN)
    if len(joints) != layout.action_dim:
        raise ValueError("an experiment with a deploy section needs a joint for every action; some actions have none")
    return joints


def _sourced(term: Term, found: ObsSource, named: Numbers) -> ContractTerm:
    size = term.size // term.steps
    owners = tuple(owner for owner in term.of or ("",) for _ in range(term.dim))  # of each entry

    def each(value: PerJoint | tuple[float, ...]) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        return per_joint(value, owners, named)

    try:
        return ContractTerm(
            term.name, size, found.source, each(found.offset), each(found.scale), found.clip, history=term.steps
        )
    except ValueError as error:
        raise ValueError(f"deploy.obs.{term.name}: {error}") from None
