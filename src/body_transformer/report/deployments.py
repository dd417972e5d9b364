"""Deployments: the logs that `bot deploy` leaves, and what is computed from them."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..deploy.link_trouble import link_trouble
from ..deploy.log import ARRAYS, DESCRIPTION, GOOD_SHAPE, SavedLog
from .curves import Floats
from .log_check import check, is_number
from .runs import DESCRIPTION as RUN
from .runs import Place, runs_below

POLICY, DAMPING = "policy", "damping"
MOVING = ("ramp", "hold", POLICY)
"""Phases in which a target is followed."""
SHARES = {"p50": 50, "p99": 99, "max": 100}


@dataclass(frozen=True)
class Span:
    """A phase, from when to when."""

    phase: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Deployment:
    """A log, with what a page shows of it. [T] are ticks, [J] joints in the contract's order."""

    folder: Path
    label: str
    """Its folder's name, with more words where several have the same."""
    log: SavedLog

    @property
    def said(self) -> Mapping[str, Any]:
        return self.log.description

    @property
    def joints(self) -> list[str]:
        return list(self.said["joints"])

    @property
    def stop(self) -> str:
        """Why it ended early; empty if it did not."""
        stop = self.said["stop"]
        return "" if stop is None else ": ".join(filter(None, (stop["reason"], stop["detail"])))

    @property
    def period_ms(self) -> float:
        return 1000 / float(self.said["loop_hz"])

    # -- time ----------------------------------------------------------------------------------------------------------

    @cached_property
    def time_s(self) -> Floats:
        """[T] When each tick began, since the loop did."""
        rows = self.log.rows
        return np.asarray(rows["tick"] / float(self.said["loop_hz"]) + rows["late_ms"] / 1000, np.float64)

    @cached_property
    def spans(self) -> list[Span]:
        """The last tick, which finds that damping is over, counts as damping."""
        ended = [k for k, name in enumerate(self.said["phases"]) if name == DAMPING]
        phases = np.minimum(self.log.rows["phase"], ended[0] if ended else 127)
        time_s = self.log.rows["tick"] / float(self.said["loop_hz"])
        starts = [0, *(np.flatnonzero(np.diff(phases)) + 1)]
        ends = [*time_s[starts[1:]], max(time_s[-1], self.time_s[-1]) + self.period_ms / 1000]
        return [
            Span(self.said["phases"][phases[k]], float(time_s[k]), float(end))
            for k, end in zip(starts, ends, strict=True)
        ]

    @property
    def stop_s(self) -> float | None:
        """When it was stopped."""
        if not self.stop:
            return None
        told = [event["time_s"] for event in self.said["events"] if event["kind"] in ("stop", "error")]
        damped = [span.start_s for span in self.spans if span.phase == DAMPING]
        return float([*told, *damped, self.spans[-1].end_s][0])

    def during(self, *phases: str) -> npt.NDArray[np.bool_]:
        """[T] Is this one of these phases?"""
        return np.isin(self.log.rows["phase"], [k for k, name in enumerate(self.said["phases"]) if name in phases])

    # -- what was measured and commanded -------------------------------------------------------------------------------

    def measured(self, name: str) -> Floats:
        """A column that comes from the robot; NaN in ticks without a state."""
        values = self.log.rows[name].astype(np.float64)
        values[self.log.rows["state"] != GOOD_SHAPE] = math.nan
        return values

    @cached_property
    def _has_spring(self) -> npt.NDArray[np.bool_]:
        """[T] Some gain is above 0, so the positions of the command count."""
        kp = self.log.rows["command"][:, 2]
        return np.asarray(self.during(*MOVING) & (kp > 0).any(axis=1))

    @cached_property
    def targets(self) -> Floats:
        """[T, J] As the policy or the ramp wants them, before filter, interpolation and limits; NaN where there are
        none."""
        return np.where(self._has_spring[:, None], self.log.rows["target"], math.nan)

    @cached_property
    def commanded(self) -> Floats:
        """[T, J] Positions that were commanded; NaN where none were."""
        return np.where(self._has_spring[:, None], self.log.rows["command"][:, 0], math.nan)

    @cached_property
    def pushed(self) -> Floats | None:
        """[T, J] Torques that were commanded, if the policy commands torques."""
        torque = self.log.rows["command"][:, 4]
        return np.where(self.during(POLICY)[:, None], torque, math.nan) if np.nan_to_num(torque).any() else None

    @cached_property
    def tilt_rad(self) -> Floats:
        """[T] The body's lean from upright."""
        quaternion = self.measured("quaternion")  # w x y z
        with np.errstate(all="ignore"):  # a robot may send zeros, or numbers that are too large
            _, x, y, _ = (quaternion / np.linalg.norm(quaternion, axis=1, keepdims=True)).T
            return np.asarray(np.arccos(np.clip(1 - 2 * (x * x + y * y), -1, 1)))

    @property
    def sent_otherwise(self) -> int:
        """Ticks in which the robot sent something else than it was asked to."""
        command, sent = self.log.rows["command"], self.log.rows["sent"]
        return int(((command != sent) & np.isfinite(sent)).any(axis=(1, 2)).sum())

    # -- numbers -------------------------------------------------------------------------------------------------------

    def roughness(self, positions: Floats) -> Floats | None:
        """[J] rad/s²: root mean square of the second difference from policy step to policy step, while the policy ran.

        A step counts by its last tick, where the interpolation has arrived; steps beside a missed tick do not. None if
        the policy did not run for three steps.
        """
        every = round(self.said["loop_hz"] / self.said["policy_hz"])
        walking = np.flatnonzero(self.during(POLICY) & self._has_spring)
        if not walking.size:
            return None
        tick = self.log.rows["tick"]
        begun = [event["tick"] for event in self.said["events"] if (event["kind"], event["text"]) == ("phase", POLICY)]
        last = walking[(tick[walking] - [*begun, tick[walking[0]]][0]) % every == every - 1]
        first, middle, third = last[:-2], last[1:-1], last[2:]
        whole = tick[third] - tick[first] == 2 * every
        if not whole.any():
            return None
        bends = (positions[third] - 2 * positions[middle] + positions[first])[whole] * self.said["policy_hz"] ** 2
        return np.asarray(np.sqrt((bends**2).mean(axis=0)))

    @cached_property
    def work_ms(self) -> Floats:
        """Of full control steps, the ticks that asked the policy."""
        return np.asarray(self.log.rows["work_ms"][self.during(POLICY) & np.isfinite(self.log.rows["policy_ms"])])

    def work(self) -> dict[str, float]:
        """p50, p99 and max in ms; none if the policy did not run."""
        return {name: float(np.percentile(self.work_ms, share)) for name, share in SHARES.items() if self.work_ms.size}

    def ticks_with(self, reason: str) -> npt.NDArray[np.bool_]:
        """[T] The runtime stepped in for this reason."""
        return np.asarray(self.log.rows["interventions"] >> self.said["reasons"].index(reason) & 1, np.bool_)

    @property
    def speed_mps(self) -> float | None:
        """If somebody measured it: the simulated robot does."""
        seen = self.said.get("report")
        speed = seen.get("mean_speed_mps") if isinstance(seen, Mapping) else None
        return None if speed is None or not is_number(speed) else float(speed)

    @property
    def fell(self) -> str:
        """What was seen from outside, if somebody looked: `it fell after 0.3 s`."""
        seen = self.said.get("report")
        if not isinstance(seen, Mapping) or type(seen.get("fell")) is not bool:
            return ""
        after = seen.get("fell_after_s")
        when = f" after {after:.1f} s" if after is not None and is_number(after) else ""
        return f"it fell{when}" if seen["fell"] else "it did not fall"

    @property
    def trouble(self) -> list[str]:
        """What the robot says of the link, where it is not as it should be."""
        seen = self.said.get("report")
        return link_trouble(seen) if isinstance(seen, Mapping) else []

    @property
    def filter(self) -> str | None:
        """None: the log does not say."""
        if "filter" not in self.said:
            return None
        low_pass = self.said["filter"]
        return f"{low_pass['cutoff_hz']:g} Hz" if low_pass else "none"


# -- finding -----------------------------------------------------------------------------------------------------------


def find_deployments(places: Iterable[Place]) -> list[Path]:
    """Folders with a log that are named, or that lie below the folders that are named; each once. Beside runs they
    are refused."""
    found: dict[Path, Path] = {}
    runs: list[Path] = []
    for place in map(Path, places):
        found |= {one.resolve(): one for one in _below(place) if one.resolve() not in found}
        runs += runs_below(place)
    if found and runs:
        raise ValueError(
            f"a page is about runs or about deployments: {str(runs[0])!r} is a run and "
            f"{str(next(iter(found.values())))!r} is a deployment; write a page for each kind"
        )
    return list(found.values())


def _below(folder: Path) -> list[Path]:
    if (folder / RUN).is_file():
        return []
    if any((folder / name).is_file() for name in (ARRAYS, DESCRIPTION)):
        return [folder]
    found = []
    for place, folders, files in os.walk(folder):
        folders.sort()
        if RUN in files:
            folders.clear()  # what lies in a run is the run's
        elif ARRAYS in files:
            found.append(Path(place))
            folders.clear()
    return found


# -- reading -----------------------------------------------------------------------------------------------------------


def read_deployments(folders: Sequence[Path]) -> list[Deployment]:
    """A log that is not whole is an error: nothing can be said of half of one."""
    labels = _labels([folder.resolve() for folder in folders])
    found = []
    for folder, label in zip(folders, labels, strict=True):
        log = SavedLog.load(folder)
        check(log, folder)
        found.append(Deployment(folder, label, log))
    return found


def _labels(folders: Sequence[Path]) -> list[str]:
    """As many names of each path, from its end, as tell them apart."""
    labels = [folder.name for folder in folders]
    for depth in range(2, 1 + max(len(folder.parts) for folder in folders)):
        count = Counter(labels)
        if max(count.values()) == 1:
            break
        labels = [
            "/".join(folder.parts[-depth:]) if count[label] > 1 else label
            for folder, label in zip(folders, labels, strict=True)
        ]
    return labels
