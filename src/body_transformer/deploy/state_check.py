"""Check of a state: whether it is new, and whether a working robot can have measured it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .observation import JointOrder, Measured, gravity_direction
from .robot import BODY, State, all_true, split_body
from .safety import Reason, SafetyConfig

if TYPE_CHECKING:
    from .control import Control

SHORTEST_QUATERNION, LONGEST_QUATERNION = 0.9, 1.1
"""A quaternion of another length is not an attitude."""
RESTING = 1e-6
"""rad/s; a faster joint has a different measured position a millisecond later, as doubles resolve far less."""


class StateCheck:
    """Check of a state: a good one is copied into `measured`, any other is refused with a reason."""

    CLOCK_SLACK_S = 1e-3
    """A state may arrive after the clock was read and before the robot is read."""
    MAX_STAMP_S = 1e11
    """Some thousand years. Beyond it, rounding of doubles hides differences of a millisecond."""

    def __init__(
        self,
        control: Control,
        config: SafetyConfig,
        order: JointOrder,
        measured: Measured,
    ) -> None:
        size = len(control.joints)
        low, high = np.array(control.position_limits, np.float64).T
        self._velocity_limit = np.array(control.velocity_limits, np.float64)
        most = np.concatenate(
            [
                high + config.range_margin_rad,
                self._velocity_limit * config.max_velocity_factor,
                np.array(control.torque_limits, np.float64) * config.max_torque_factor,
                np.full(3, config.max_angular_velocity),
                np.full(4, LONGEST_QUATERNION),
                np.full(3, config.max_linear_velocity),
            ]
        )
        self._least, self._most = -most, most
        self._least[:size] = low - config.range_margin_rad
        self._all = np.zeros(len(most))
        """The parts of a state, joints in the contract's order, as one array."""
        self._pos, self._vel, self._torque = self._all[: 3 * size].reshape(3, size)
        self._spin, self._quaternion, self._velocity = split_body(self._all)
        self._config, self._order, self._measured = config, order, measured
        self._joints = control.joints
        self.detail = ""
        """The measured values behind the last refusal."""

    def __call__(self, state: State, now_s: float, is_driven: Callable[[], bool] = lambda: False) -> Reason | None:
        """Copy a good state into `measured` and return None, or return the reason for refusing it.

        `is_driven` returns whether the robot has been commanded to move since the last good state.
        """
        self.detail = ""
        reason = self._shape(state)
        if reason is None:
            self._all[:] = self._order.state_from_robot(state)
            inside = all_true((self._all >= self._least) & (self._all <= self._most))  # False for NaN
            reason = (
                self._finite(state, inside)
                or self._stamps(state, now_s)
                or self._age(state)
                or self._frozen(is_driven)
                or self._range(inside)
                or self._jump(state)
            )
        if reason is None:
            self._take(state)
        return reason

    def _shape(self, state: State) -> Reason | None:
        if state.fits(len(self._joints)):
            return None
        self.detail = f"shapes {[np.shape(part) for part in state.parts]}"
        return Reason.STATE_SHAPE

    def _finite(self, state: State, inside: bool) -> Reason | None:
        finite = math.isfinite(state.stamp_s) and math.isfinite(state.received_s)
        if not finite or not (inside or np.isfinite(self._all).all()):
            return Reason.STATE_NOT_FINITE
        return None

    def _stamps(self, state: State, now_s: float) -> Reason | None:
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

    def _frozen(self, is_driven: Callable[[], bool]) -> Reason | None:
        """Refuse an exact repetition, as sensors have noise; a simulated robot at rest has none."""
        if not (self._measured.known and all_true(self._all == self._measured.values)):
            return None
        moves = max(float(np.abs(self._vel).max()), float(np.abs(self._spin).max())) > RESTING
        return Reason.STATE_FROZEN if moves or is_driven() else None

    def _range(self, inside: bool) -> Reason | None:
        norm = math.hypot(*self._quaternion.tolist())
        if inside and SHORTEST_QUATERNION < norm < LONGEST_QUATERNION:
            return None
        outside = (self._all < self._least) | (self._all > self._most)
        kind, joint = divmod(int(outside[:-BODY].argmax()), len(self._joints))
        if outside[:-BODY].any():
            what = ("position", "velocity", "torque")[kind]
            value = (self._pos, self._vel, self._torque)[kind][joint]
            self.detail = f"joint {what} of {self._joints[joint]} {value:.3g}"
        elif outside[-10:-7].any():
            self.detail = f"angular velocity {np.abs(self._spin).max():.3g} rad/s"
        elif outside[-3:].any():
            self.detail = f"linear velocity {np.abs(self._velocity).max():.3g} m/s"
        else:
            self.detail = f"quaternion of length {norm:.3g}"
        return Reason.STATE_ABSURD

    def _jump(self, state: State) -> Reason | None:
        """Refuse a position that the speed cannot explain, such as that of two swapped joints."""
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
        measured.values[:] = self._all
        gravity_direction(measured.quaternion, measured.gravity)
