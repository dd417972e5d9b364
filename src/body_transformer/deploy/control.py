"""The numbers that turn measurements into observations, and actions into motor commands.

They are the `obs` and `control` sections of a contract; each class checks its own values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import listing, repeated
from ..schema import High, Low

Source = Literal[
    "",
    "zeros",
    "linear_velocity",
    "angular_velocity",
    "projected_gravity",
    "command",
    "joint_pos",
    "joint_vel",
    "previous_action",
]
Kind = Literal["position", "torque"]
JOINT_SOURCES = ("joint_pos", "joint_vel", "previous_action")
VECTOR_SOURCES = ("linear_velocity", "angular_velocity", "projected_gravity")


@dataclass(frozen=True)
class ContractTerm:
    """Consecutive entries of the observation: clip((measured - offset) * scale)."""

    name: str
    """As in the layout."""
    size: int
    """Entries of one measurement."""
    source: Source
    """The measured quantity; "" if only the training environment has it. Joints are in the contract's order."""
    offset: tuple[float, ...]
    """[size], subtracted first."""
    scale: tuple[float, ...]
    """[size]"""
    clip: float | tuple[Low, High] | None
    """Bounds on the scaled entries: a symmetric one, or (low, high), in which null means no bound."""
    history: int = 1
    """Number of measurements in the observation, oldest first."""

    def __post_init__(self) -> None:
        for name in ("size", "history"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be from 1 up; got {getattr(self, name)}")
        for name in ("offset", "scale"):
            if len(getattr(self, name)) != self.size:
                raise ValueError(f"{name} must have {self.size} entries; got {len(getattr(self, name))}")
        low, high = self.bounds
        if not low < high:
            raise ValueError(f"clip must be above 0, or (low, high); got {self.clip}")
        if self.source in VECTOR_SOURCES and self.size != 3:
            raise ValueError(f"{self.source} has 3 entries; got {self.size}")

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest scaled entry."""
        if self.clip is None:
            return -math.inf, math.inf
        return self.clip if isinstance(self.clip, tuple) else (-self.clip, self.clip)

    @property
    def width(self) -> int:
        """Entries of the observation."""
        return self.size * self.history


@dataclass(frozen=True)
class Filter:
    """A Butterworth low-pass filter of the targets, at the policy's rate."""

    order: int
    cutoff_hz: float

    def __post_init__(self) -> None:
        if self.order < 1 or not self.cutoff_hz > 0:
            raise ValueError(f"a filter has an order from 1 up and a cutoff above 0 Hz; got {self}")


def butterworth(cutoff_hz: float, rate_hz: float) -> tuple[float, float, float, float, float]:
    """Return b0, b1, b2, a1, a2 of the second-order low-pass y = b0 x + b1 x₋₁ + b2 x₋₂ - a1 y₋₁ - a2 y₋₂.

    It is the analog 1 / (s² + √2 s + 1) by the bilinear transform; the tangent puts -3 dB exactly at the cutoff.
    """
    if not (math.isfinite(cutoff_hz) and math.isfinite(rate_hz) and 0 < cutoff_hz < rate_hz / 2):
        raise ValueError(
            f"a low-pass filter at {rate_hz:g} Hz needs a cutoff between 0 and {rate_hz / 2:g} Hz; got {cutoff_hz:g}"
        )
    k = math.tan(math.pi * cutoff_hz / rate_hz)
    scale = 1 / (1 + math.sqrt(2) * k + k * k)
    b0 = k * k * scale
    return b0, 2 * b0, b0, 2 * (k * k - 1) * scale, (1 - math.sqrt(2) * k + k * k) * scale


@dataclass(frozen=True)
class TorqueClip:
    """Clip of targets for which motors with these gains, at the measured state, would need more than this torque."""

    torque: tuple[float, ...]
    """[A], Nm."""
    kp: tuple[float, ...]
    """[A], Nm/rad: the training's gains, whichever gains the robot runs with."""
    kd: tuple[float, ...]
    """[A], Nm s/rad."""

    def __post_init__(self) -> None:
        if not len(self.torque) == len(self.kp) == len(self.kd):
            raise ValueError(f"torque, kp and kd must have one number per joint each; got {self}")
        if not all(value > 0 for value in (*self.torque, *self.kp)) or not all(value >= 0 for value in self.kd):
            raise ValueError(f"torque and kp must be above 0, kd 0 or above; got {self}")


_PER_JOINT = ("scale", "offset", "default_pose", "kp", "kd", "position_limits", "velocity_limits", "torque_limits")


@dataclass(frozen=True)
class Control:
    """Numbers from an action to a motor command: target = offset + scale * clip(action), bounded by `torque_clip`.

    `action_pipeline` lists all steps in order. Every value per joint is in the order of `joints`.
    """

    kind: Kind
    """Whether the target is a position for the joint's controller, or a torque."""
    hz: float
    """Actions per second."""
    joints: tuple[str, ...]
    """[A], in the order of actions and of every value per joint here."""
    scale: tuple[float, ...]
    """[A]"""
    offset: tuple[float, ...]
    """[A]"""
    clip: float | None
    """Symmetric bound on the action: the experiment's, and at most 1 where the policy squashes its actions."""
    torque_clip: TorqueClip | None
    """The training's clip of its targets, applied before filter and limits."""
    default_pose: tuple[float, ...]
    """[A], rad: the pose that the robot takes before the policy starts."""
    kp: tuple[float, ...]
    """[A], Nm/rad: the robot's gains; `Contract.training` has those of the training."""
    kd: tuple[float, ...]
    """[A], Nm s/rad."""
    position_limits: tuple[tuple[Low, High], ...]
    """[A] (low, high), rad. Here and below, null in the file is infinity: no limit."""
    velocity_limits: tuple[High, ...]
    """[A], rad/s."""
    torque_limits: tuple[High, ...]
    """[A], Nm."""
    filter: Filter | None
    """Low-pass filter of the targets."""
    command: tuple[float, ...]
    """Default command of the policy: forward and sideways m/s, turning rad/s."""

    def __post_init__(self) -> None:
        twice = repeated(self.joints)
        if twice or not self.joints:
            raise ValueError(f"joints must be different ones, at least one; given more than once: {listing(twice)}")
        for name in _PER_JOINT:
            if len(getattr(self, name)) != len(self.joints):
                raise ValueError(
                    f"{name} must have {len(self.joints)} entries, one per joint; got {len(getattr(self, name))}"
                )
        if not self.hz > 0:
            raise ValueError(f"hz must be above 0; got {self.hz}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be above 0; got {self.clip}")
        cut = self.torque_clip
        if cut is not None and (self.kind != "position" or len(cut.kp) != len(self.joints)):
            raise ValueError(f"a torque_clip is for positions, and has {len(self.joints)} joints; got {cut}")
        if self.filter is not None and not self.filter.cutoff_hz < self.hz / 2:
            raise ValueError(f"the filter's cutoff must be below half of {self.hz} Hz; got {self.filter.cutoff_hz} Hz")
        for k in range(len(self.joints)):
            self._check_joint(k)

    def _check_joint(self, k: int) -> None:
        joint, (low, high) = self.joints[k], self.position_limits[k]
        if not low < high:
            raise ValueError(f"position_limits of {joint!r} must be (low, high); got ({low}, {high})")
        if not low <= self.default_pose[k] <= high:
            raise ValueError(f"default_pose of {joint!r} is {self.default_pose[k]}, outside of {low} to {high}")
        for name in ("velocity_limits", "torque_limits"):
            if not getattr(self, name)[k] > 0:
                raise ValueError(f"{name} of {joint!r} must be above 0; got {getattr(self, name)[k]}")
        for name in ("kp", "kd"):
            if not getattr(self, name)[k] >= 0:
                raise ValueError(f"{name} of {joint!r} must be 0 or above; got {getattr(self, name)[k]}")


@dataclass(frozen=True)
class Environment:
    """Facts about the training environment; the defaults hold for exports without them."""

    robot: str | None = None
    """Name of the robot's model; None: the names of the joints identify it."""
    imu: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Place of the observed linear velocity in the root body's frame, m."""
    command_range: tuple[tuple[float, float], ...] | None = None
    """Least and largest value of each entry of the command in the training; None if it is not known."""

    def check_command(self, command: Sequence[float]) -> None:
        """Refuse a command beyond the trained range."""
        if self.command_range is None:
            return
        if len(command) != len(self.command_range):
            raise ValueError(f"command_range has {len(self.command_range)} entries; the command has {len(command)}")
        outside = [not low <= value <= high for value, (low, high) in zip(command, self.command_range, strict=True)]
        if any(outside):
            allowed = ", ".join(f"{low:g} to {high:g}" for low, high in self.command_range)
            given = ", ".join(f"{value:g}" for value in command)
            raise ValueError(f"the policy was trained with commands of {allowed}; got {given}")
