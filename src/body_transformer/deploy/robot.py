"""What a robot is to the runtime: something that is read and sent to."""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

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
        joints = (num_joints,)
        arrays = (self.joint_pos, self.joint_vel, self.joint_torque, self.angular_velocity, self.quaternion)
        return (
            isinstance(self.sequence, int | np.integer)
            and isinstance(self.stamp_s, float | int)
            and isinstance(self.received_s, float | int)
            and all(isinstance(array, np.ndarray) and array.dtype == np.float64 for array in arrays)
            and [array.shape for array in arrays] == [joints, joints, joints, (3,), (4,)]
        )


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

    def check(self, num_joints: int) -> None:
        """An error unless every part is as many finite numbers."""
        for name in COMMAND:
            values = np.asarray(getattr(self, name))
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
