"""How the simulated robot's rollout went, seen from outside."""

from __future__ import annotations

import numpy as np

from .sim_body import Pose, SimBody
from .sim_options import Outcome

MAX_ROLL_RAD, MAX_PITCH_RAD, MIN_HEIGHT_M = 0.8, 1.6, 0.15
"""The paper's terminations in training."""


class Rollout:
    """Watches the body from `begin` to `end`."""

    def __init__(self, body: SimBody) -> None:
        self._body = body
        self.begin()

    def begin(self) -> None:
        """Forgets what was; the rollout starts here and now."""
        self._start_s = self._now_s = self._body.time_s
        self._from = self._to = self._body.pose()
        self._fell_after_s = -1.0
        self._speeds, self._count = 0.0, 0
        self._max_tilt_rad = self._max_torque_nm = 0.0
        self._running = True

    def end(self) -> None:
        """What comes now does not count."""
        self._running = False

    def watch(self) -> None:
        """To be called after every few physics steps."""
        if not self._running:
            return
        pose = self._to = self._body.pose()
        self._now_s = self._body.time_s
        self._speeds, self._count = self._speeds + pose.forward_mps, self._count + 1
        self._max_tilt_rad = max(self._max_tilt_rad, abs(pose.roll_rad), abs(pose.pitch_rad))
        self._max_torque_nm = max(self._max_torque_nm, float(np.abs(self._body.torque).max()))
        if self._fell_after_s < 0 and self._has_fallen(pose):
            self._fell_after_s = self._now_s - self._start_s

    def outcome(self) -> Outcome:
        """So far."""
        moved, heading = self._to.position - self._from.position, self._from.heading_rad
        return Outcome(
            fell=self._fell_after_s >= 0,
            fell_after_s=self._fell_after_s,
            duration_s=self._now_s - self._start_s,
            distance_m=float(moved[0] * np.cos(heading) + moved[1] * np.sin(heading)),
            sideways_m=float(moved[1] * np.cos(heading) - moved[0] * np.sin(heading)),
            mean_speed_mps=self._speeds / max(self._count, 1),
            max_tilt_rad=self._max_tilt_rad,
            max_torque_nm=self._max_torque_nm,
        )

    def _has_fallen(self, pose: Pose) -> bool:
        return (
            abs(pose.roll_rad) > MAX_ROLL_RAD
            or abs(pose.pitch_rad) > MAX_PITCH_RAD
            or pose.position[2] < MIN_HEIGHT_M
            or self._body.trunk_touches_floor()
        )
