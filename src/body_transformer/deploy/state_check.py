"""Is this state one that a healthy robot has measured, and is it new?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from .observation import JointOrder, Measured, gravity_direction
from .robot import State
from .safety import Reason, SafetyConfig

if TYPE_CHECKING:
    from .contract import Control


class StateCheck:
    """Takes a state into `measured`, or says why not."""

    CLOCK_SLACK_S = 1e-3
    """A state may come between our look at the clock and our look at the robot."""
    MAX_STAMP_S = 1e11
    """Some thousand years: beyond, differences of a millisecond drown in rounding."""

    def __init__(self, control: Control, config: SafetyConfig, order: JointOrder, measured: Measured) -> None:
        low, high = np.array(control.position_limits, np.float64).T
        self._low, self._high = low - config.range_margin_rad, high + config.range_margin_rad
        self._velocity_limit = np.array(control.velocity_limits, np.float64)
        self._max_velocity = self._velocity_limit * config.max_velocity_factor
        self._max_torque = np.array(control.torque_limits, np.float64) * config.max_torque_factor
        self._config, self._order, self._measured = config, order, measured
        self._joints = control.joints
        self._pos, self._vel, self._torque = np.zeros((3, len(low)))
        self.detail = ""
        """Of the last refusal, what was measured."""

    def __call__(self, state: State, now_s: float) -> Reason | None:
        """None if the state is good and was taken."""
        self.detail = ""
        reason = self._shape(state) or self._values(state, now_s) or self._age(state)
        if reason is None:
            self._order.from_robot(state.joint_pos, self._pos)
            self._order.from_robot(state.joint_vel, self._vel)
            self._order.from_robot(state.joint_torque, self._torque)
            reason = self._range(state) or self._jump(state)
        if reason is None:
            self._take(state)
        return reason

    def _shape(self, state: State) -> Reason | None:
        if state.fits(len(self._joints)):
            return None
        parts = (state.joint_pos, state.joint_vel, state.joint_torque, state.angular_velocity, state.quaternion)
        self.detail = f"shapes {[np.shape(part) for part in parts]}"
        return Reason.STATE_SHAPE

    def _values(self, state: State, now_s: float) -> Reason | None:
        finite = (
            math.isfinite(state.stamp_s)
            and math.isfinite(state.received_s)
            and np.isfinite(state.joint_pos).all()
            and np.isfinite(state.joint_vel).all()
            and np.isfinite(state.joint_torque).all()
            and np.isfinite(state.angular_velocity).all()
            and np.isfinite(state.quaternion).all()
        )
        if not finite:
            return Reason.STATE_NOT_FINITE
        if (
            not 0 <= state.sequence < 2**62
            or abs(state.stamp_s) > self.MAX_STAMP_S
            or state.received_s > now_s + self.CLOCK_SLACK_S
        ):
            self.detail = f"sequence {state.sequence}, received {state.received_s - now_s:.3g} s from now"
            return Reason.STATE_ABSURD
        return None

    def _age(self, state: State) -> Reason | None:
        if state.sequence == self._measured.sequence:
            return Reason.STATE_DUPLICATED
        if state.sequence < self._measured.sequence:
            return Reason.STATE_REORDERED
        return None

    def _range(self, state: State) -> Reason | None:
        for name, value, low, high in (
            ("joint position", self._pos, self._low, self._high),
            ("joint velocity", self._vel, -self._max_velocity, self._max_velocity),
            ("joint torque", self._torque, -self._max_torque, self._max_torque),
        ):
            outside = (value < low) | (value > high)
            if outside.any():
                joint = int(outside.argmax())
                self.detail = f"{name} of {self._joints[joint]} {value[joint]:.3g}"
                return Reason.STATE_ABSURD
        if np.abs(state.angular_velocity).max() > self._config.max_angular_velocity:
            self.detail = f"angular velocity {np.abs(state.angular_velocity).max():.3g} rad/s"
            return Reason.STATE_ABSURD
        norm = math.hypot(*state.quaternion.tolist())
        if not 0.9 < norm < 1.1:
            self.detail = f"quaternion of length {norm:.3g}"
            return Reason.STATE_ABSURD
        return None

    def _jump(self, state: State) -> Reason | None:
        """Do speed and position agree? Two joints that changed places do not."""
        if not self._measured.known:
            return None
        elapsed = state.stamp_s - self._measured.stamp_s
        if elapsed <= 0:
            self.detail = f"the robot's clock went back by {-elapsed:.3g} s"
            return Reason.STATE_ABSURD
        expected = self._measured.joint_pos + (self._measured.joint_vel + self._vel) * (elapsed / 2)
        surprise = np.abs(self._pos - expected) - self._velocity_limit * (elapsed / 4)
        joint = int(surprise.argmax())
        if surprise[joint] > self._config.jump_rad:
            before, after = self._measured.joint_pos[joint], self._pos[joint]
            self.detail = f"{self._joints[joint]} from {before:.3g} to {after:.3g} rad in {elapsed:.3g} s"
            return Reason.STATE_JUMPED
        return None

    def _take(self, state: State) -> None:
        measured = self._measured
        measured.sequence, measured.stamp_s = int(state.sequence), float(state.stamp_s)
        measured.joint_pos[:], measured.joint_vel[:], measured.joint_torque[:] = self._pos, self._vel, self._torque
        measured.angular_velocity[:] = state.angular_velocity
        measured.quaternion[:] = state.quaternion
        gravity_direction(measured.quaternion, measured.gravity)
