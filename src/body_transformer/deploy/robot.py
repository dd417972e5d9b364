"""What the runtime and a robot say to each other."""

from __future__ import annotations

from dataclasses import dataclass
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
    """time.monotonic() here."""
    joint_pos: NDArray[np.float64]
    """[J], rad"""
    joint_vel: NDArray[np.float64]
    """[J], rad/s"""
    joint_torque: NDArray[np.float64]
    """[J], Nm, estimated"""
    angular_velocity: NDArray[np.float64]
    """[3], rad/s, body frame"""
    quaternion: NDArray[np.float64]
    """[4], w x y z, body to world"""


@dataclass(frozen=True)
class Command:
    """For every joint, in the robot's order: torque + kp (position - q) + kd (velocity - q̇)."""

    position: NDArray[np.float64]
    velocity: NDArray[np.float64]
    kp: NDArray[np.float64]
    kd: NDArray[np.float64]
    torque: NDArray[np.float64]

    @classmethod
    def damping(cls, num_joints: int, kd: float) -> Command:
        """Every joint resists motion and goes nowhere."""
        zeros = [np.zeros(num_joints) for _ in range(4)]
        return cls(zeros[0], zeros[1], zeros[2], np.full(num_joints, kd, np.float64), zeros[3])


class Robot(Protocol):
    """A robot, or what stands for one."""

    joints: tuple[str, ...]
    """Its own order."""

    def read(self) -> State | None:
        """The newest; None if nothing new has come since the last call; never blocks."""

    def send(self, command: Command) -> Command:
        """Returns what was really sent."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None:
        """Leaves the robot in damping."""
