"""The command that leaves: whatever was asked for, it is finite and within every limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .masks import any_true
from .robot import COMMAND
from .safety import Interventions, Reason, SafetyConfig

if TYPE_CHECKING:
    from .control import Control, TorqueClip

Vector = NDArray[np.float64]
_LITTLE = 1e-9


class TargetClip:
    """What the training did to a target [J], which the policy has learned with; no limit of the robot's."""

    def __init__(self, clip: TorqueClip) -> None:
        torque, kp, kd = (np.array(value, np.float64) for value in (clip.torque, clip.kp, clip.kd))
        self._ahead, self._most = kd / kp, torque / kp
        self._middle, self._end = np.zeros((2, len(kp)))

    def __call__(self, target: Vector, pos: Vector, vel: Vector) -> None:
        """In place: kp (target - pos) - kd vel stays within the torque."""
        middle, end = self._middle, self._end
        np.multiply(vel, self._ahead, out=middle)
        middle += pos
        np.maximum(target, np.subtract(middle, self._most, out=end), out=target)
        np.minimum(target, np.add(middle, self._most, out=end), out=target)


class Limiter:
    """Targets become commands, in the contract's joint order; `position`, `kp`, `kd`, `torque` hold the last one."""

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
        """[5, J], its parts as rows; the velocity stays 0."""
        self.position, _, self.kp, self.kd, self.torque = self.command
        self._least_torque, self._noticed = -self.max_torque, _LITTLE * self.max_torque
        self.previous, self.previous_torque = np.zeros((2, len(self.low)))
        """The last position and torque that were sent; the next step is counted from there."""

    def start(self, position: Vector) -> None:
        """Where the joints are before the first command."""
        self.previous[:] = np.clip(position, self.low, self.high)
        self.previous_torque[:] = 0

    def hold_position(self, target: Vector, pos: Vector, vel: Vector) -> None:
        """The command that brings the joints, now at `pos` with `vel`, nearest to `target`.

        The target is moved first. Where the limits leave no target (the joint was carried far from the previous
        command, say), the gains are lowered: a weaker spring satisfies every limit, a further target does not.
        """
        speed, kd = np.abs(vel), self.kd
        least, most = self._torque_range(vel, speed)
        np.minimum(self._kd, self.max_torque / np.maximum(speed, _LITTLE), out=kd)
        braking = kd * vel
        least, most = np.minimum(least + braking, 0), np.maximum(most + braking, 0)  # what is left for the spring

        wanted = self._clip(target, self.low, self.high, Reason.POSITION_LIMIT)
        lowest, highest = pos + least / self._stiffness, pos + most / self._stiffness
        wanted = self._clip(wanted, lowest, highest, Reason.TORQUE_LIMIT)
        wanted = self._clip(wanted, self.previous - self.step, self.previous + self.step, Reason.STEP_LIMIT)
        np.minimum(np.maximum(wanted, self.low), self.high, out=self.position)

        stretch = self.position - pos
        spring = self._kp * stretch
        allowed = np.minimum(np.maximum(spring, least), most)
        weaker = np.abs(spring - allowed) > self._noticed
        self.kp[:] = self._kp
        if any_true(weaker):
            self._interventions.count(Reason.GAIN_REDUCED)
            self.kp[weaker] = allowed[weaker] / stretch[weaker]
        self.torque[:] = 0
        self.previous[:] = self.position

    def push(self, torque: Vector, pos: Vector, vel: Vector) -> None:
        """A torque command: nothing drives a joint that is at its limit, or too quick, any further."""
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
        """Resist the motion, as strongly as the torque limits allow at the last known speed."""
        np.divide(self.max_torque, np.maximum(np.abs(vel), _LITTLE), out=self.kd)
        np.minimum(self.kd, self._damping_kd, out=self.kd)
        self.position[:] = self.kp[:] = self.torque[:] = 0

    def _torque_range(self, vel: Vector, speed: Vector) -> tuple[Vector, Vector]:
        """[J] least and most torque; a joint beyond its velocity limit may only be braked."""
        too_quick = speed > self.max_velocity
        if not any_true(too_quick):
            return self._least_torque, self.max_torque
        self._interventions.count(Reason.VELOCITY_LIMIT)
        return (
            np.where(too_quick & (vel < 0), 0.0, self._least_torque),
            np.where(too_quick & (vel > 0), 0.0, self.max_torque),
        )

    def _clip(self, value: Vector, low: Vector, high: Vector, reason: Reason) -> Vector:
        clipped = np.minimum(np.maximum(value, low), high)
        if any_true(clipped != value):
            self._interventions.count(reason)
        return clipped
