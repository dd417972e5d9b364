"""What a robot's own hardware allows, whatever a contract says: a contract beyond it is refused, a command is cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .masks import all_true
from .robot import Command

if TYPE_CHECKING:
    from .control import Control


@dataclass(frozen=True)
class JointLimits:
    """Of one joint."""

    low: float
    """rad"""
    high: float
    """rad"""
    velocity: float
    """rad/s, both ways."""
    torque: float
    """Nm, both ways."""


@dataclass(frozen=True)
class Hardware:
    """A robot's joints, and the largest gains that they may be given."""

    name: str
    joints: Mapping[str, JointLimits]
    kp: float
    """Nm/rad"""
    kd: float
    """Nm s/rad, of a contract."""
    damping_kd: float
    """Nm s/rad, of a command: damping may have more."""

    def check(self, control: Control) -> None:
        """An error if the contract's control asks for more than the robot has."""
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
    """Cuts commands, in this joint order, to what the hardware allows."""

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
        """The same command if it is within the bounds; a target without a gain means nothing and stays as it is."""
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
    {
        f"{leg}_{part}_joint": limits
        for leg in ("FR", "FL", "RR", "RL")
        for part, limits in (("hip", _HIP), ("thigh", _THIGH), ("calf", _CALF))
    },
    kp=180.0,
    kd=8.0,
    damping_kd=20.0,
)
"""Ranges: those of Unitree's description (`robots/a1.xml`) and of `a1_const.h` in Unitree's SDK, whichever is wider,
rounded outwards; they are less than 0.004 rad apart. Speeds and torques: the description. Gains: the authors' robot has
100 and 1; Unitree's own example of an A1 (unitree_ros, unitree_controller/src/body.cpp, for its simulator) has 180 and
8 at a thigh."""

KNOWN = (A1,)


def hardware_of(joints: Iterable[str]) -> Hardware | None:
    """The robot that has these joints, in any order; None for one that is not known here."""
    names = set(joints)
    return next((hardware for hardware in KNOWN if names == set(hardware.joints)), None)
