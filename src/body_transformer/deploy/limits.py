"""Limits of a command: the contract's limits change its target, the hardware's bounds clip every part of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .robot import COMMAND, Command, all_true, any_true
from .safety import Interventions, Reason, SafetyConfig

if TYPE_CHECKING:
    from .control import Control

Vector = NDArray[np.float64]
_LITTLE = 1e-9


class Limiter:
    """Turn targets into commands within every limit, in the contract's joint order.

    `position`, `kp`, `kd` and `torque` hold the last command.
    """

    def __init__(self, control: Control, config: SafetyConfig, period_s: float, interventions: Interventions) -> None:
        self.low, self.high = np.array(control.position_limits, np.float64).T.copy()  # [J]
        self.max_velocity = np.array(control.velocity_limits, np.float64)
        self.max_torque = np.array(control.torque_limits, np.float64) * config.torque_fraction
        self.step = self.max_velocity * period_s
        if config.step_rad is not None:
            self.step = np.minimum(self.step, config.step_rad)
        self.torque_step = self.max_torque / 2 if config.step_nm is None else np.full_like(self.low, config.step_nm)
        self._kp, self._kd = np.array(control.kp, np.float64), np.array(control.kd, np.float64)
        self._stiffness = np.maximum(self._kp, _LITTLE)
        self._damping_kd = config.damping_kd
        self._interventions = interventions
        self.command = np.zeros((len(COMMAND), len(self.low)))
        """[5, J], the parts of a command as rows; the velocity stays 0."""
        self.position, _, self.kp, self.kd, self.torque = self.command
        self._least_torque, self._tolerance = -self.max_torque, _LITTLE * self.max_torque
        self.previous, self.previous_torque = np.zeros((2, len(self.low)))
        """The last position and torque that were sent; the step limit counts from there."""

    def start(self, position: Vector) -> None:
        """Count the step limits of the first command from this measured position."""
        self.previous[:] = np.clip(position, self.low, self.high)
        self.previous_torque[:] = 0

    def hold_position(self, target: Vector, pos: Vector, vel: Vector) -> None:
        """Command the position nearest to `target` that the limits allow, for joints at `pos` with `vel`.

        The target is moved first. If no target satisfies all limits, the gains are lowered, because a weaker spring
        satisfies every limit. This happens, for example, if the joint was pushed far from the previous command.
        """
        speed, kd = np.abs(vel), self.kd
        least, most = self._torque_range(vel, speed)
        np.minimum(self._kd, self.max_torque / np.maximum(speed, _LITTLE), out=kd)
        braking = kd * vel
        least, most = np.minimum(least + braking, 0), np.maximum(most + braking, 0)  # the torque left for the spring

        wanted = self._clip(target, self.low, self.high, Reason.POSITION_LIMIT)
        lowest, highest = pos + least / self._stiffness, pos + most / self._stiffness
        wanted = self._clip(wanted, lowest, highest, Reason.TORQUE_LIMIT)
        wanted = self._clip(wanted, self.previous - self.step, self.previous + self.step, Reason.STEP_LIMIT)
        np.minimum(np.maximum(wanted, self.low), self.high, out=self.position)

        stretch = self.position - pos
        spring = self._kp * stretch
        allowed = np.minimum(np.maximum(spring, least), most)
        weaker = np.abs(spring - allowed) > self._tolerance
        self.kp[:] = self._kp
        if any_true(weaker):
            self._interventions.count(Reason.GAIN_REDUCED)
            self.kp[weaker] = allowed[weaker] / stretch[weaker]
        self.torque[:] = 0
        self.previous[:] = self.position

    def push(self, torque: Vector, pos: Vector, vel: Vector) -> None:
        """Command a torque that drives no joint beyond its position or velocity limit."""
        least, most = self._torque_range(vel, np.abs(vel))
        least, most = np.where(pos <= self.low, 0.0, least), np.where(pos >= self.high, 0.0, most)
        step = self.torque_step
        wanted = self._clip(torque, -self.max_torque, self.max_torque, Reason.TORQUE_LIMIT)
        wanted = self._clip(wanted, self.previous_torque - step, self.previous_torque + step, Reason.STEP_LIMIT)
        self.torque[:] = self._clip(wanted, least, most, Reason.POSITION_LIMIT)
        self.position[:] = self.previous
        self.kp[:] = self.kd[:] = 0
        self.previous_torque[:] = self.torque

    def damp(self, vel: Vector) -> None:
        """Command damping, as strong as the torque limits allow at the last known speed."""
        np.divide(self.max_torque, np.maximum(np.abs(vel), _LITTLE), out=self.kd)
        np.minimum(self.kd, self._damping_kd, out=self.kd)
        self.position[:] = self.kp[:] = self.torque[:] = 0

    def _torque_range(self, vel: Vector, speed: Vector) -> tuple[Vector, Vector]:
        """Return the least and most torque [J]; a joint beyond its velocity limit may only be braked."""
        too_fast = speed > self.max_velocity
        if not any_true(too_fast):
            return self._least_torque, self.max_torque
        self._interventions.count(Reason.VELOCITY_LIMIT)
        return (
            np.where(too_fast & (vel < 0), 0.0, self._least_torque),
            np.where(too_fast & (vel > 0), 0.0, self.max_torque),
        )

    def _clip(self, value: Vector, low: Vector, high: Vector, reason: Reason) -> Vector:
        clipped = np.minimum(np.maximum(value, low), high)
        if any_true(clipped != value):
            self._interventions.count(reason)
        return clipped


# -- hardware ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JointLimits:
    """Bounds of one joint's hardware."""

    low: float
    """rad"""
    high: float
    """rad"""
    velocity: float
    """rad/s, in both directions."""
    torque: float
    """Nm, in both directions."""


@dataclass(frozen=True)
class Hardware:
    """Bounds of a robot's joints and gains. A contract beyond them is refused, a command is clipped to them."""

    name: str
    model: str
    """Name of the robot's model."""
    joints: Mapping[str, JointLimits]
    kp: float
    """Nm/rad"""
    kd: float
    """Nm s/rad, in a contract."""
    damping_kd: float
    """Nm s/rad, in a command: damping may have more than a contract."""

    def check(self, control: Control) -> None:
        """Refuse a control with values beyond the hardware's bounds."""
        for k, joint in enumerate(control.joints):
            own = self.joints[joint]
            low, high = control.position_limits[k]
            if low < own.low or high > own.high:
                self._refuse("position_limits", joint, f"({low:g}, {high:g})", f"{own.low:g} to {own.high:g} rad")
            for name, value, most, unit in (
                ("velocity_limits", control.velocity_limits[k], own.velocity, "rad/s"),
                ("torque_limits", control.torque_limits[k], own.torque, "Nm"),
                ("kp", control.kp[k], self.kp, "Nm/rad"),
                ("kd", control.kd[k], self.kd, "Nm s/rad"),
            ):
                if value > most:
                    self._refuse(name, joint, f"{value:g}", f"{most:g} {unit} at most")

    def _refuse(self, name: str, joint: str, given: str, allowed: str) -> None:
        raise ValueError(f"control.{name} of {joint!r} is {given}; {self.name} allows {allowed}")


class CommandBounds:
    """Clip commands, in a given joint order, to the hardware's bounds."""

    def __init__(self, hardware: Hardware, joints: Sequence[str]) -> None:
        own = [hardware.joints[joint] for joint in joints]
        gains = np.ones(len(own))
        most = [
            [limits.high for limits in own],
            [limits.velocity for limits in own],
            hardware.kp * gains,
            hardware.damping_kd * gains,
            [limits.torque for limits in own],
        ]
        self._most = np.array(most, np.float64)  # [5, J], as the parts of a command
        self._least = -self._most
        self._least[0] = [limits.low for limits in own]
        self._least[2:4] = 0.0

    def __call__(self, command: Command) -> Command:
        """Return the clipped command; the same object if nothing changes.

        A target without a gain has no effect, so it stays as it is.
        """
        asked = np.array(command.parts)
        cut = np.minimum(np.maximum(asked, self._least), self._most)
        free = cut[2:4] == 0.0
        cut[:2][free] = asked[:2][free]
        return command if all_true(cut == asked) else Command(*cut)


_HIP = JointLimits(-0.803, 0.803, 52.4, 33.5)
_THIGH = JointLimits(-1.05, 4.19, 28.6, 33.5)
_CALF = JointLimits(-2.7, -0.916, 28.6, 33.5)
A1 = Hardware(
    "the A1",
    "a1",
    {
        f"{leg}_{part}_joint": limits
        for leg in ("FR", "FL", "RR", "RL")
        for part, limits in (("hip", _HIP), ("thigh", _THIGH), ("calf", _CALF))
    },
    kp=180.0,
    kd=8.0,
    damping_kd=20.0,
)
"""Ranges: the wider of Unitree's description (`robots/a1.xml`) and `a1_const.h` in Unitree's SDK, rounded outwards. The
two differ by less than 0.004 rad. Speeds and torques: the description. Gains: the authors' robot has 100 and 1.
Unitree's own example of an A1 (unitree_ros, unitree_controller/src/body.cpp, for its simulator) has 180 and 8 at a
thigh."""

KNOWN = (A1,)


def hardware_of(joints: Iterable[str], robot: str | None = None) -> Hardware | None:
    """Return the known hardware with these joints, in any order; None if there is none.

    `robot` is the name of the robot's model if it is known: the Go1 has joints of the same names as the A1.
    """
    names = set(joints)
    return next(
        (known for known in KNOWN if names == set(known.joints) and robot in (None, known.model)),
        None,
    )
