"""Safety: the limits of a run, the interventions with their reasons, and the stop that stays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from ..schema import check_fields
from .robot import DAMPING_KD


class Reason(IntEnum):
    """Reasons for an intervention of the runtime; those from STATE_LOST on end the run in damping."""

    POSITION_LIMIT = 0
    """A target outside the joint's range was moved to the range's end."""
    VELOCITY_LIMIT = 1
    """A joint is faster than its limit: nothing drives it further."""
    TORQUE_LIMIT = 2
    """A target was moved so that the torque at the measured state stays within the limit."""
    STEP_LIMIT = 3
    """A target was too far from the previous command."""
    GAIN_REDUCED = 4
    """No target satisfies all limits at once: the gains were lowered until the torque does."""
    ACTION_CLIPPED = 5
    """An action was beyond the contract's clip."""
    STATE_DUPLICATED = 6
    """A state that had arrived before was ignored."""
    STATE_REORDERED = 7
    """A state older than the last one was ignored."""
    STATE_LATE = 8
    """The newest state is older than half of the allowed age."""
    STATE_SHAPE = 9
    """A state of the wrong shape or type was ignored."""
    STATE_NOT_FINITE = 10
    """A state with NaN or infinity was ignored."""
    STATE_ABSURD = 11
    """A state with values that no working robot measures was ignored."""
    STATE_JUMPED = 12
    """A state with joint positions that the joint speeds cannot explain was ignored."""
    STATE_FROZEN = 13
    """A state that repeats the last one, although the robot moves or is driven, was ignored."""
    MISSED_DEADLINE = 14
    """A command left after its period had ended."""
    STATE_LOST = 15
    """No usable state has come for longer than allowed."""
    BAD_STATES = 16
    """Too many unusable states came in a row."""
    LATE_LOOP = 17
    """Too many deadlines were missed."""
    TILTED = 18
    """The body is tilted too far."""
    BAD_ACTION = 19
    """The policy's action has the wrong shape, is not finite, or is far too large."""
    BAD_START = 20
    """The measured pose is outside the limits before anything moved."""
    POSE_NOT_REACHED = 21
    """The ramp did not bring the joints to the default pose."""
    NO_STATE = 22
    """The robot never sent a usable state."""
    EMERGENCY_STOP = 23
    """A call, a key or a signal requested it."""
    ROBOT_TRIPPED = 24
    """The robot's own protection lets only damping through."""
    ERROR = 25
    """An exception in the robot, its link or the policy."""

    @property
    def text(self) -> str:
        """The reason in words."""
        return self.name.lower().replace("_", " ")


MISSED_S = 0.1
"""Missed deadlines that add up to this time lead to damping, unless `max_missed` is given."""
BAD_STATE = (Reason.STATE_SHAPE, Reason.STATE_NOT_FINITE, Reason.STATE_ABSURD, Reason.STATE_JUMPED)


@dataclass(frozen=True)
class SafetyConfig:
    """Limits of a run, beyond those of the contract."""

    stale_ms: float = 100.0
    """Damping when no usable state has come for longer than this."""
    clock_drift: float = 2e-4
    """Allowed drift of the robot's clock against the controller's, s/s. Quartz drifts a fifth of it; a simulator on a
    busy computer needs more. A latency that grows more slowly than this is not noticed."""
    start_states: int = 3
    """Good states in a row before anything moves: a single one cannot be checked against another."""
    max_bad_states: int = 3
    """Damping after this many unusable states in a row."""
    max_missed: int | None = None
    """Missed deadlines until damping; ten kept ones make up for a missed one. None: as many as add up to 100 ms."""
    max_tilt_rad: float = 1.0
    """Damping when the body is tilted further than this from upright."""
    step_rad: float | None = None
    """Largest movement of a joint's target per tick; None: as far as the joint's velocity limit allows."""
    step_nm: float | None = None
    """Largest change of a torque per tick, for a policy that commands torques; None: half the torque limit."""
    torque_fraction: float = 1.0
    """Share of the contract's torque limits; less for a first run on a stand."""
    max_action: float = 100.0
    """Damping when an action is beyond this: the policy is broken."""
    range_margin_rad: float = 0.5
    """A joint measured further than this beyond its limits is an absurd measurement."""
    max_velocity_factor: float = 3.0
    """A joint faster than this multiple of its velocity limit is an absurd measurement."""
    max_torque_factor: float = 10.0
    """A torque beyond this multiple of its limit is an absurd measurement."""
    max_angular_velocity: float = 40.0
    """rad/s; more is an absurd measurement, as a common gyroscope ends at 35."""
    max_linear_velocity: float = 20.0
    """m/s; more is an absurd measurement."""
    jump_rad: float = 0.1
    """Allowed distance of a joint from where its speed predicts it, plus a quarter of the way at its velocity limit."""
    start_margin_rad: float = 0.1
    """Allowed distance of a joint outside its limits at the start: a lying robot rests on its mechanical stops."""
    reached_rad: float = 0.5
    """Allowed distance of a joint from the default pose after the ramp: it sags under the robot's weight."""
    damping_kd: float = DAMPING_KD
    """Gain of damping, Nm s/rad; less for a fast joint, so that the torque limit holds."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.torque_fraction > 1:
            raise ValueError(f"torque_fraction must be at most 1; got {self.torque_fraction!r}")

    def missed_allowed(self, hz: float) -> int:
        """Return the number of missed deadlines until damping, for a loop with this rate."""
        return max(math.ceil(MISSED_S * hz - 1e-9), 1) if self.max_missed is None else self.max_missed


@dataclass(frozen=True)
class Stop:
    """Reason for a run's early end in damping."""

    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason.text}: {self.detail}" if self.detail else self.reason.text


class Interventions:
    """Interventions by reason, those of the present tick as bits, and the stop."""

    def __init__(self) -> None:
        self._counts = [0] * len(Reason)
        self.tick_bits = 0
        self.stop: Stop | None = None
        self.ended = False
        """Whether the run has ended as planned: the robot is in damping, with nothing left to stop."""
        self.afterwards: Stop | None = None
        """The first stop that came after the planned end."""

    def count(self, reason: Reason, times: int = 1) -> None:
        """Count an intervention."""
        self._counts[reason] += times
        self.tick_bits |= 1 << reason

    def latch(self, reason: Reason, detail: str = "") -> None:
        """Stop the run. The first stop stays; after the planned end only an error still stops it."""
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
        """The number of all interventions."""
        return sum(self._counts)

    def counts(self) -> dict[str, int]:
        """Return the number of interventions by reason; reasons that never occurred are left out."""
        return {reason.text: self._counts[reason] for reason in Reason if self._counts[reason]}


class Freshness:
    """Age of the newest state, on our clock.

    The robot's clock has another zero, so the travel time of a single state is not known. The fastest state gives the
    offset between the clocks, and a state that takes longer is late by the difference.
    """

    def __init__(self, clock_drift: float) -> None:
        self._drift = clock_drift
        self._measured_s = -math.inf
        self._received_s = -math.inf
        self._offset_s = math.inf

    def update(self, stamp_s: float, received_s: float) -> None:
        """Take a new state into account."""
        offset = received_s - stamp_s
        relaxed = self._offset_s
        if math.isfinite(relaxed):
            relaxed += self._drift * max(received_s - self._received_s, 0.0)
        self._offset_s = min(relaxed, offset)
        self._received_s = received_s
        self._measured_s = stamp_s + self._offset_s

    def age_s(self, now_s: float) -> float:
        """Return the age of the newest state."""
        return now_s - self._measured_s


class DeadlineBudget:
    """Count of missed deadlines, slowly reduced by kept ones: a stuttering loop ends the run as an outage does."""

    FORGIVEN = 0.1
    """Share of a missed deadline that a kept one makes up for."""

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed
        self._missed = 0.0

    def tick(self, missed: int) -> bool:
        """Count the deadlines missed since the last tick; return True when they are too many."""
        self._missed = self._missed + missed if missed else max(self._missed - self.FORGIVEN, 0.0)
        return self._missed >= self.allowed


def tilt_rad(gravity: NDArray[np.float64]) -> float:
    """Return the tilt from upright of a body for which gravity has this direction, a unit vector [3]."""
    return math.acos(min(max(-float(gravity[2]), -1.0), 1.0))
