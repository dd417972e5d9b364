"""The interface of a robot: a state is read from it, a command is sent to it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

FLOAT64 = np.dtype(np.float64)
BODY = 10
"""Numbers in a state besides those of the joints."""
DAMPING_KD = 5.0
"""Default gain of damping, Nm s/rad."""


# NumPy's any() and all() take 10 µs with the cold caches of a tick; these are faster.
def any_true(mask: NDArray[np.bool_]) -> bool:
    """Return whether any of a few booleans is true."""
    return 1 in mask.tobytes()


def all_true(mask: NDArray[np.bool_]) -> bool:
    """Return whether all of a few booleans are true."""
    return 0 not in mask.tobytes()


@dataclass(frozen=True)
class State:
    """One measurement of a robot, in its own joint order."""

    sequence: int
    """Counts the robot's measurements."""
    stamp_s: float
    """Time of the measurement, on the robot's clock."""
    received_s: float
    """Time of arrival, by `time.monotonic()`."""
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
    linear_velocity: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    """[3], m/s, of the origin of the body's frame, in that frame; 0 from a robot that does not estimate it."""

    def fits(self, num_joints: int) -> bool:
        """Return whether every part has the documented type and shape, which a broken link does not guarantee."""
        sizes = num_joints, num_joints, num_joints, 3, 4, 3
        return (
            isinstance(self.sequence, (int, np.integer))  # a union would be built again in every tick
            and isinstance(self.stamp_s, (float, int))
            and isinstance(self.received_s, (float, int))
            and all(map(_is_vector, self.parts, sizes))
        )

    @property
    def parts(self) -> tuple[NDArray[np.float64], ...]:
        """The arrays, in their order."""
        joints = self.joint_pos, self.joint_vel, self.joint_torque
        return *joints, self.angular_velocity, self.quaternion, self.linear_velocity


def split_body(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Return views of angular velocity [3], quaternion [4] and linear velocity [3], the last parts of a state."""
    return values[-10:-7], values[-7:-3], values[-3:]


def _is_vector(value: object, size: int) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == FLOAT64 and value.shape == (size,)


@dataclass(frozen=True)
class Command:
    """A motor command per joint, in the robot's order: torque + kp (position - q) + kd (velocity - q̇)."""

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
        """Return the command that brakes every joint and drives none."""
        zero = np.zeros(num_joints)
        return cls(zero, zero.copy(), zero.copy(), np.full(num_joints, kd), zero.copy())

    @property
    def parts(self) -> tuple[NDArray[np.float64], ...]:
        """The arrays, in their order."""
        return self.position, self.velocity, self.kp, self.kd, self.torque

    def check(self, num_joints: int) -> None:
        """Refuse a command in which a part is not one finite number per joint."""
        parts = self.parts
        if all(_is_vector(part, num_joints) for part in parts) and all_true(np.isfinite(np.concatenate(parts))):
            return
        for name, part in zip(COMMAND, parts, strict=True):
            values = np.asarray(part)
            if values.shape != (num_joints,) or not np.isfinite(values).all():
                raise ValueError(f"{name} of a command must be {num_joints} finite numbers; got {values}")


COMMAND = tuple(part.name for part in fields(Command))
"""The parts of a command, in their order."""


class Robot(ABC):
    """A robot or a simulation of one; a driver is a subclass, used in a `with` statement.

    Every driver provides `joints` and the abstract methods; the other members have defaults.
    """

    loop_hz: ClassVar[float | None] = None
    """Default rate of commands; None: the policy's rate."""
    clock_drift: ClassVar[float] = 2e-4
    """Default of `SafetyConfig.clock_drift`."""

    joints: tuple[str, ...]
    """Joint names in the robot's own order; a driver sets them in the class, or in `__enter__` at the latest."""
    rates_hz: tuple[float, float] = (0.0, math.inf)
    """Lowest and highest rate of commands that the robot takes."""
    tripped: str = ""
    """Reason of the robot's own protection for accepting only damping; empty while it accepts every command."""
    round_trip_s: float = math.nan
    """Latency of the link, there and back; NaN if it is not known."""
    estimates_velocity: bool = False
    """Whether states have the body's linear velocity; a policy that observes it runs on no other robot."""
    shares_computer: bool = False
    """Whether the robot is a program on this computer; it then runs on other cores than the loop."""

    @classmethod
    def create(cls, options: Mapping[str, Any], expected: Sequence[str] = ()) -> Self:
        """Make a robot from its options; refuse unknown ones. `expected` are joints that it must have, in any order."""
        if options:
            raise ValueError(f"this robot has no options; got {', '.join(options)}")
        return cls()

    @abstractmethod
    def read(self) -> State | None:
        """Return the newest state; None if nothing new has come since the last call. Never block."""

    @abstractmethod
    def send(self, command: Command) -> Command:
        """Send a command, and return the command that the robot received."""

    def __enter__(self) -> Self:
        """Connect to the robot."""
        return self

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Leave the robot in damping."""

    def begin_rollout(self) -> None:  # noqa: B027, optional
        """Mark the start of the time that `summary` covers, the start of the policy; called in the loop."""

    def end_rollout(self) -> None:  # noqa: B027, optional
        """Mark the end of that time; not called after a stop, as the robot may still fall."""

    def summary(self) -> dict[str, Any] | None:
        """Return the robot's own report of the rollout, for JSON, after `__exit__`; None if it has none."""
        return None
