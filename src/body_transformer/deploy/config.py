"""DeployConfig: the `deploy` section of an experiment, from which `bot export` makes a contract's control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from ..errors import listing
from ..schema import build, shown
from .contract import Filter, Kind, Source

Named = Literal["default_pose", "range_middle", "per_half_range", "torque_limits"]
"""Numbers of the joints that stand elsewhere: in this section, or in the robot's file."""
PerJoint = float | Named | Mapping[str, float]
"""The same for all joints; or by name; or by patterns such as "*_hip_joint", one of which must fit each joint."""


@dataclass(frozen=True)
class ObsSource:
    """How a term of the observation is made: clip((measured - offset) * scale)."""

    source: Source
    """What is measured."""
    offset: PerJoint | tuple[float, ...] = 0.0
    """A list has one number an entry."""
    scale: PerJoint | tuple[float, ...] = 1.0
    """Likewise."""
    clip: float | None = None
    """Bound, both ways."""


@dataclass(frozen=True)
class Training:
    """What became of targets in training."""

    kp: PerJoint
    """Nm/rad."""
    kd: PerJoint
    """Nm s/rad."""
    torque: PerJoint | None = None
    """Nm; targets were cut off where these gains would at once have asked for more."""


@dataclass(frozen=True)
class DeployConfig:
    """What lies between measurements and observations, and between actions and motors.

    Position and torque limits are those of the robot's file.
    """

    kind: Kind
    """What an action's target is."""
    hz: float
    """Actions a second."""
    obs: Mapping[str, ObsSource]
    """Term -> where it comes from; only the training environment knows those that are not here."""
    action_scale: PerJoint = 1.0
    """target = offset + scale * action."""
    action_offset: PerJoint = 0.0
    """Likewise."""
    action_clip: float | None = None
    """Bound on the action, both ways; 1 at most, whatever is said here, where the policy squashes its actions."""
    default_pose: PerJoint = 0.0
    """rad"""
    kp: PerJoint = 0.0
    """Nm/rad, on the robot."""
    kd: PerJoint = 0.0
    """Nm s/rad, on the robot."""
    velocity_limits: PerJoint | None = None
    """rad/s; none known if not given."""
    filter: Filter | None = None
    """Of the targets."""
    command: tuple[float, ...] = ()
    """Told to the policy, where it is told something."""
    training: Training | None = None
    """The gains of the training, if the robot's are others, and where it cut targets off."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DeployConfig:
        return build(cls, data, "deploy")


def per_joint(value: PerJoint, joints: Sequence[str], named: Mapping[str, Sequence[float]]) -> tuple[float, ...]:
    """One number a joint."""
    if isinstance(value, str):
        if value not in named:
            raise ValueError(f"{value!r} is not known here; have: {listing(named)}")
        return tuple(named[value])
    if not isinstance(value, Mapping):
        return (float(value),) * len(joints)
    fitting = {joint: [pattern for pattern in value if fnmatchcase(joint, pattern)] for joint in joints}
    for joint, patterns in fitting.items():
        if len(patterns) != 1:
            raise ValueError(f"joint {joint!r} must fit one pattern of {shown(dict(value))}; it fits {len(patterns)}")
    idle = set(value) - {pattern for patterns in fitting.values() for pattern in patterns}
    if idle:
        raise ValueError(f"no joint fits {listing(sorted(idle))}; the joints are {listing(joints)}")
    return tuple(value[fitting[joint][0]] for joint in joints)
