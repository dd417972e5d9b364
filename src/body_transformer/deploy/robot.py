"""What a robot is to the runtime: something that is read and sent to."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray


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
    def damping(cls, num_joints: int, kd: float) -> Command:
        """Every joint is braked and none is moved."""
        zero = np.zeros(num_joints)
        return cls(zero, zero.copy(), zero.copy(), np.full(num_joints, kd), zero.copy())


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
