"""What a robot is to the runtime: something that is read and sent to."""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from .masks import all_true

FLOAT64 = np.dtype(np.float64)
DAMPING_KD = 5.0
"""Nm s/rad: what a robot brakes with, and is left with, unless somebody says otherwise."""


@dataclass(frozen=True)
class State:
    """What the robot measured, in its own joint order."""

    sequence: int
    """Counts up by one a measurement, at the robot."""
    stamp_s: float
    """The robot's clock."""
    received_s: float
    """`time.monotonic()` here."""
    joint_pos: NDArray[np.float64]
    """[J], rad."""
    joint_vel: NDArray[np.float64]
    """[J], rad/s."""
    joint_torque: NDArray[np.float64]
    """[J], Nm, estimated."""
    angular_velocity: NDArray[np.float64]
    """[3], rad/s, body frame."""
    quaternion: NDArray[np.float64]
    """[4], w x y z, body to world."""

    def fits(self, num_joints: int) -> bool:
        """Whether everything has the type and the shape that is written here, which a broken link need not keep to."""
        return (
            isinstance(self.sequence, (int, np.integer))  # a union would be built anew in every tick
            and isinstance(self.stamp_s, (float, int))
            and isinstance(self.received_s, (float, int))
            and _is_vector(self.joint_pos, num_joints)
            and _is_vector(self.joint_vel, num_joints)
            and _is_vector(self.joint_torque, num_joints)
            and _is_vector(self.angular_velocity, 3)
            and _is_vector(self.quaternion, 4)
        )

    @property
    def parts(self) -> tuple[NDArray[np.float64], ...]:
        """The arrays, in their order."""
        return self.joint_pos, self.joint_vel, self.joint_torque, self.angular_velocity, self.quaternion


def _is_vector(value: object, size: int) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == FLOAT64 and value.shape == (size,)


@dataclass(frozen=True)
class Command:
    """For every joint, in the robot's order: torque + kp (position - q) + kd (velocity - q̇)."""

    position: NDArray[np.float64]
    """[J], rad."""
    velocity: NDArray[np.float64]
    """[J], rad/s."""
    kp: NDArray[np.float64]
    """[J], Nm/rad."""
    kd: NDArray[np.float64]
    """[J], Nm s/rad."""
    torque: NDArray[np.float64]
    """[J], Nm."""

    @classmethod
    def damping(cls, num_joints: int, kd: float = DAMPING_KD) -> Command:
        """Every joint is braked and none is moved."""
        zero = np.zeros(num_joints)
        return cls(zero, zero.copy(), zero.copy(), np.full(num_joints, kd), zero.copy())

    @property
    def parts(self) -> tuple[NDArray[np.float64], ...]:
        """The arrays, in their order."""
        return self.position, self.velocity, self.kp, self.kd, self.torque

    def check(self, num_joints: int) -> None:
        """An error unless every part is as many finite numbers."""
        parts = self.parts
        if all(_is_vector(part, num_joints) for part in parts) and all_true(np.isfinite(np.concatenate(parts))):
            return
        for name, part in zip(COMMAND, parts, strict=True):
            values = np.asarray(part)
            if values.shape != (num_joints,) or not np.isfinite(values).all():
                raise ValueError(f"{name} of a command must be {num_joints} finite numbers; it is {values}")


COMMAND = tuple(field.name for field in fields(Command))
"""The parts of a command, in their order."""


class Robot(Protocol):
    """A robot, or what behaves like one."""

    joints: tuple[str, ...]
    """Its own order."""

    def read(self) -> State | None:
        """The newest state; None if nothing new has come since the last call. Never blocks."""

    def send(self, command: Command) -> Command:
        """Returns what was really sent."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leaves the robot in damping."""
