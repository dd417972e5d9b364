"""Safety: what is allowed, what was intervened in and why, and the stop that stays."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from .robot import DAMPING_KD


class Reason(IntEnum):
    """Why the runtime stepped in; those from STATE_LOST on end the run in damping."""

    POSITION_LIMIT = 0
    """A target outside the joint's range was moved to its edge."""
    VELOCITY_LIMIT = 1
    """A joint is quicker than its limit: nothing drives it further."""
    TORQUE_LIMIT = 2
    """A target was moved so that the torque at the measured state stays within the limit."""
    STEP_LIMIT = 3
    """A target was too far from the previous command."""
    GAIN_REDUCED = 4
    """No target satisfies all limits at once: the gains were lowered until the torque does."""
    ACTION_CLIPPED = 5
    """An action beyond the contract's clip."""
    STATE_DUPLICATED = 6
    """A state that had come before was ignored."""
    STATE_REORDERED = 7
    """A state older than the last one was ignored."""
    STATE_LATE = 8
    """The newest state is older than half of what is allowed."""
    STATE_SHAPE = 9
    """A state of the wrong shape or type was ignored."""
    STATE_NOT_FINITE = 10
    """A state with NaN or infinity was ignored."""
    STATE_ABSURD = 11
    """A state that no healthy robot measures was ignored."""
    STATE_JUMPED = 12
    """A state whose joints are where their speed cannot have brought them was ignored."""
    STATE_FROZEN = 13
    """A state that repeats the last one, though the robot moves or is told to, was ignored."""
    MISSED_DEADLINE = 14
    """A command left after the period it was for."""
    STATE_LOST = 15
    """No usable state for longer than allowed."""
    BAD_STATES = 16
    """Too many unusable states in a row."""
    LATE_LOOP = 17
    """Too many missed deadlines."""
    TILTED = 18
    """The body leans too far."""
    BAD_ACTION = 19
    """The policy's action has the wrong shape, is not finite, or is absurd."""
    BAD_START = 20
    """The measured pose is outside the limits before anything moved."""
    POSE_NOT_REACHED = 21
    """The ramp did not bring the joints to the default pose."""
    NO_STATE = 22
    """The robot never sent a usable state."""
    EMERGENCY_STOP = 23
    """Somebody asked: a call or a signal."""
    ROBOT_TRIPPED = 24
    """The robot's own protection sends damping, whatever it is asked for."""
    ERROR = 25
    """An exception in the robot, its link or the policy."""

    @property
    def text(self) -> str:
        return self.name.lower().replace("_", " ")


MISSED_S = 0.1
"""Missed deadlines that add up to this mean damping, unless somebody says how many."""
BAD_STATE = (Reason.STATE_SHAPE, Reason.STATE_NOT_FINITE, Reason.STATE_ABSURD, Reason.STATE_JUMPED)


@dataclass(frozen=True)
class SafetyConfig:
    """What is allowed, beyond the limits that the contract has."""

    stale_ms: float = 100.0
    """No usable state for longer than this: damping."""
    clock_drift: float = 2e-4
    """s/s that the robot's clock may drift from ours: quartz is five times as good, a simulator on a busy computer is
    not. A latency that grows more slowly than this is not noticed."""
    start_states: int = 3
    """This many good states in a row before anything moves: by a first one alone, nobody knows whether it is true."""
    max_bad_states: int = 3
    """This many unusable states in a row: damping."""
    max_missed: int | None = None
    """Missed deadlines until damping; ten kept ones make up for one missed. None: as many as make 100 ms."""
    max_tilt_rad: float = 1.0
    """The body's lean, from upright, that means damping."""
    step_rad: float | None = None
    """How far a joint's target may move in one tick; None: as far as the joint's velocity limit allows."""
    step_nm: float | None = None
    """The same for a policy that commands torques; None: half the torque limit."""
    torque_fraction: float = 1.0
    """Of the contract's torque limits: less for a first run on a stand."""
    max_action: float = 100.0
    """An action beyond this is a broken policy."""
    range_margin_rad: float = 0.5
    """How far beyond its limits a joint may be measured before the measurement is absurd."""
    max_velocity_factor: float = 3.0
    """Of the velocity limit: a quicker joint is an absurd measurement."""
    max_torque_factor: float = 10.0
    """Of the torque limit: a larger estimate is an absurd measurement."""
    max_angular_velocity: float = 40.0
    """rad/s; a common gyroscope ends at 35."""
    jump_rad: float = 0.1
    """How far a joint may be from where its speed brought it (beside a quarter of what its velocity limit allows)."""
    start_margin_rad: float = 0.1
    """How far outside its limits a joint may start: a lying robot rests on its mechanical stops."""
    reached_rad: float = 0.5
    """How far from the default pose a joint may be after the ramp: it sags under the robot's weight."""
    damping_kd: float = DAMPING_KD
    """Nm s/rad in damping; less for a quick joint, so that the torque limit holds there too."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in ("max_missed", "step_rad", "step_nm"):
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
                raise ValueError(f"{field.name} is a number above 0, not {value!r}")
        if self.torque_fraction > 1:
            raise ValueError(f"torque_fraction is at most 1, not {self.torque_fraction!r}")

    def missed_allowed(self, hz: float) -> int:
        """Missed deadlines until damping, of a loop with this rate."""
        return max(math.ceil(MISSED_S * hz - 1e-9), 1) if self.max_missed is None else self.max_missed


@dataclass(frozen=True)
class Stop:
    """Why a run ended in damping."""

    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason.text}: {self.detail}" if self.detail else self.reason.text


class Interventions:
    """How often the runtime stepped in, by reason; and which reasons this tick had, as bits."""

    def __init__(self) -> None:
        self._counts = [0] * len(Reason)
        self.tick_bits = 0
        self.stop: Stop | None = None
        self.ended = False
        """As planned: the robot is in damping, and there is nothing left to stop."""
        self.afterwards: Stop | None = None
        """What would have stopped the run, had it not ended before."""

    def count(self, reason: Reason, times: int = 1) -> None:
        self._counts[reason] += times
        self.tick_bits |= 1 << reason

    def latch(self, reason: Reason, detail: str = "") -> None:
        """The first stop stays; whatever comes later does not change why the run ended. An error is one at any time."""
        if self.stop is not None:
            return
        if not self.ended or reason is Reason.ERROR:
            self.count(reason)
            self.stop = Stop(reason, detail)
        elif self.afterwards is None:
            self.count(reason)
            self.afterwards = Stop(reason, detail)

    @property
    def total(self) -> int:
        return sum(self._counts)

    def counts(self) -> dict[str, int]:
        """Reason -> how often, without those that never came."""
        return {reason.text: self._counts[reason] for reason in Reason if self._counts[reason]}


class Freshness:
    """How old what we know of the robot is, on our clock.

    The two clocks have different zeros, so how long a state was under way is not known; but the quickest one tells the
    offset, and what takes longer than it is late by the difference.
    """

    def __init__(self, clock_drift: float) -> None:
        self._drift = clock_drift
        self._measured_s = -math.inf
        self._received_s = -math.inf
        self._offset_s = math.inf

    def came(self, stamp_s: float, received_s: float) -> None:
        offset = received_s - stamp_s
        relaxed = self._offset_s
        if math.isfinite(relaxed):
            relaxed += self._drift * max(received_s - self._received_s, 0.0)
        self._offset_s = min(relaxed, offset)
        self._received_s = received_s
        self._measured_s = stamp_s + self._offset_s

    def age_s(self, now_s: float) -> float:
        return now_s - self._measured_s


class DeadlineBudget:
    """Missed deadlines add up and are forgiven slowly, so that a stutter ends the run as an outage does."""

    FORGIVEN = 0.1
    """Of a missed deadline, by one that was kept."""

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed
        self._missed = 0.0

    def tick(self, missed: int) -> bool:
        """`missed` since the last tick; True when there were too many."""
        self._missed = self._missed + missed if missed else max(self._missed - self.FORGIVEN, 0.0)
        return self._missed >= self.allowed


def tilt_rad(gravity: NDArray[np.float64]) -> float:
    """The lean from upright of a body that sees gravity's direction as this unit vector [3]."""
    return math.acos(min(max(-float(gravity[2]), -1.0), 1.0))
