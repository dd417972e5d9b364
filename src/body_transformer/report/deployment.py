"""The logs that `bot deploy` writes, and the quantities computed from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..deploy.log import GOOD_SHAPE
from ..deploy.saved_log import LogDescription, SavedLog
from ..schema import is_number
from .curves import Floats

POLICY, DAMPING = "policy", "damping"
MOVING = ("ramp", "hold", POLICY)
"""Phases in which the joints follow a target."""


@dataclass(frozen=True)
class PhaseSpan:
    """A phase with its start and end."""

    phase: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Deployment:
    """A log with its derived quantities. [T] are ticks, [J] joints in the contract's order."""

    folder: Path
    label: str
    """Name of the folder, with as many parent folders as needed to be unique."""
    log: SavedLog

    @property
    def facts(self) -> LogDescription:
        """Content of log.json."""
        return self.log.description

    @property
    def stop(self) -> str:
        """Reason of an early end; empty without one."""
        return str(self.facts.stop or "")

    # -- time ----------------------------------------------------------------------------------------------------------

    @cached_property
    def time_s(self) -> Floats:
        """Start of each tick since the start of the loop, [T]."""
        rows = self.log.rows
        return np.asarray(rows["tick"] / self.facts.loop_hz + rows["late_ms"] / 1000, np.float64)

    @cached_property
    def spans(self) -> list[PhaseSpan]:
        """Phases in order; the last tick, which finds that damping is over, belongs to damping."""
        names = list(self.facts.phases)
        last = names.index(DAMPING) if DAMPING in names else len(names) - 1
        phases = np.minimum(self.log.rows["phase"], last)
        time_s = self.log.rows["tick"] / self.facts.loop_hz
        starts = [0, *(np.flatnonzero(np.diff(phases)) + 1)]
        ends = [*time_s[starts[1:]], max(time_s[-1], self.time_s[-1]) + 1 / self.facts.loop_hz]
        return [PhaseSpan(names[phases[k]], float(time_s[k]), float(end)) for k, end in zip(starts, ends, strict=True)]

    @property
    def ends_s(self) -> tuple[float, float]:
        """Start of the first and end of the last phase."""
        return self.spans[0].start_s, self.spans[-1].end_s

    @property
    def gap_s(self) -> float:
        """Longest time between two points of one line; beyond it a measurement is missing."""
        return float(max(self.facts.safety.stale_ms / 1000, 2.5 / self.facts.policy_hz))

    @property
    def stop_s(self) -> float | None:
        """Time of an early end."""
        if not self.stop:
            return None
        logged = [event.time_s for event in self.facts.events if event.kind in ("stop", "error")]
        damped = [span.start_s for span in self.spans if span.phase == DAMPING]
        return float([*logged, *damped, self.spans[-1].end_s][0])

    def during(self, *phases: str) -> npt.NDArray[np.bool_]:
        """Return which ticks are in one of these phases, [T]."""
        return np.isin(self.log.rows["phase"], [k for k, name in enumerate(self.facts.phases) if name in phases])

    # -- measurements and commands -------------------------------------------------------------------------------------

    def measured(self, name: str) -> Floats:
        """Return a column measured by the robot; NaN in ticks without a state."""
        values = self.log.rows[name].astype(np.float64)
        values[self.log.rows["state"] != GOOD_SHAPE] = math.nan
        return values

    @cached_property
    def _has_position_gain(self) -> npt.NDArray[np.bool_]:
        """Ticks [T] with a gain above 0, in which commanded positions have an effect."""
        kp = self.log.rows["command"][:, 2]
        return np.asarray(self.during(*MOVING) & (kp > 0).any(axis=1))

    @cached_property
    def targets(self) -> Floats:
        """Positions [T, J] of the policy or the ramp before filter, interpolation and limits; else NaN."""
        return np.where(self._has_position_gain[:, None], self.log.rows["target"], math.nan)

    @cached_property
    def commanded(self) -> Floats:
        """Commanded positions [T, J]; else NaN."""
        return np.where(self._has_position_gain[:, None], self.log.rows["command"][:, 0], math.nan)

    @cached_property
    def commanded_torque(self) -> Floats | None:
        """Commanded torques [T, J] of a policy that commands torques."""
        torque = self.log.rows["command"][:, 4]
        return np.where(self.during(POLICY)[:, None], torque, math.nan) if np.nan_to_num(torque).any() else None

    @cached_property
    def tilt_rad(self) -> Floats:
        """Angle between the body's vertical axis and gravity, [T]."""
        quaternion = self.measured("quaternion")  # w x y z
        with np.errstate(all="ignore"):  # a robot may send zeros, or numbers that are too large
            _, x, y, _ = (quaternion / np.linalg.norm(quaternion, axis=1, keepdims=True)).T
            return np.asarray(np.arccos(np.clip(1 - 2 * (x * x + y * y), -1, 1)))

    @property
    def num_changed_commands(self) -> int:
        """Ticks in which the robot sent a command that differs from the requested one."""
        command, sent = self.log.rows["command"], self.log.rows["sent"]
        return int(((command != sent) & np.isfinite(sent)).any(axis=(1, 2)).sum())

    # -- statistics ----------------------------------------------------------------------------------------------------

    def roughness(self, positions: Floats) -> Floats | None:
        """Return the root mean square of the second difference between policy steps, in rad/s², [J].

        Each policy step is represented by its last tick, where interpolation is complete; steps next to a missed tick
        are left out. None if the policy ran for fewer than three steps.
        """
        every = round(self.facts.loop_hz / self.facts.policy_hz)
        running = np.flatnonzero(self.during(POLICY) & self._has_position_gain)
        if not running.size:
            return None
        tick = self.log.rows["tick"]
        begun = (event.tick for event in self.facts.events if (event.kind, event.text) == ("phase", POLICY))
        last = running[(tick[running] - next(begun, tick[running[0]])) % every == every - 1]
        first, middle, third = last[:-2], last[1:-1], last[2:]
        whole = tick[third] - tick[first] == 2 * every
        if not whole.any():
            return None
        bends = (positions[third] - 2 * positions[middle] + positions[first])[whole] * self.facts.policy_hz**2
        return np.asarray(np.sqrt((bends**2).mean(axis=0)))

    def overall_roughness(self, positions: Floats) -> float | None:
        """Return the root mean square of `roughness` over the joints."""
        joints = self.roughness(positions)
        return None if joints is None else math.sqrt(float((joints**2).mean()))

    @cached_property
    def work_ms(self) -> Floats:
        """Duration of the ticks that ran the policy, from their start until the command was sent."""
        return np.asarray(self.log.rows["work_ms"][self.during(POLICY) & np.isfinite(self.log.rows["policy_ms"])])

    def ticks_with(self, reason: str) -> npt.NDArray[np.bool_]:
        """Return the ticks in which the runtime intervened for this reason, [T]."""
        return np.asarray(self.log.rows["interventions"] >> self.facts.reasons.index(reason) & 1, np.bool_)

    @property
    def robot_report(self) -> Mapping[str, Any]:
        """The robot's own report; only the simulated robot writes one."""
        return self.facts.report or {}

    @property
    def speed_mps(self) -> float | None:
        """Mean speed, if it was measured."""
        speed = self.robot_report.get("mean_speed_mps")
        return float(speed) if is_number(speed) else None

    @property
    def fell(self) -> str:
        """Whether the robot fell, if this was observed: `it fell after 0.3 s`."""
        fell, after = self.robot_report.get("fell"), self.robot_report.get("fell_after_s")
        if type(fell) is not bool:
            return ""
        when = f" after {after:.1f} s" if is_number(after) else ""
        return f"it fell{when}" if fell else "it did not fall"

    @property
    def filter(self) -> str:
        """Cut-off of the low-pass filter, or `none`."""
        return f"{self.facts.filter.cutoff_hz:g} Hz" if self.facts.filter else "none"


# -- read --------------------------------------------------------------------------------------------------------------


def read_deployments(folders: Sequence[Path]) -> list[Deployment]:
    """Read the logs; an incomplete log is an error."""
    found = []
    for folder in folders:
        log = SavedLog.load(folder)
        if not len(log.rows["tick"]):
            raise ValueError(f"the log in {str(folder)!r} has no ticks: there is nothing to show")
        found.append(Deployment(folder, _label(folder, folders), log))
    return found


def _label(folder: Path, folders: Sequence[Path]) -> str:
    """Return as many names from the end of a path as distinguish it from the others."""
    own, others = folder.resolve().parts, [other.resolve().parts for other in folders if other != folder]
    depths = range(1, len(own) + 1)
    depth = next((depth for depth in depths if all(other[-depth:] != own[-depth:] for other in others)), len(own))
    return "/".join(own[-depth:])
