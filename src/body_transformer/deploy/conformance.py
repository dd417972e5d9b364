"""Check a driver in one session with its robot, in which only damping is sent."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .robot import Command, Robot, State

SECONDS = 1.0
HZ = 50.0
"""Rate of commands if the driver gives none."""
MIN_STATES = 5
SHARE_OF_PERIOD = 0.25
"""A read or a send usually takes less than this share of a period."""
MAX_AGE_S = 1.0


class Finding(NamedTuple):
    """The result of one check."""

    claim: str
    """Requirement for a driver."""
    problem: str
    """What this driver does instead; empty if the requirement is met."""


class Reading(NamedTuple):
    """A state, its values when it was read, and the time before and after the call."""

    state: State
    values: tuple[NDArray[np.float64], ...]
    before_s: float
    after_s: float


@dataclass
class Session:
    """Record of a session, from `__enter__` to `__exit__`."""

    robot: Robot
    period_s: float = 1 / HZ
    readings: list[Reading] = field(default_factory=list)
    returned: list[Any] = field(default_factory=list)
    """Results of `send` for damping commands."""
    accepted: list[str] = field(default_factory=list)
    """Invalid commands that `send` did not refuse."""
    read_s: list[float] = field(default_factory=list)
    """Durations."""
    send_s: list[float] = field(default_factory=list)
    summary: Any = None


def conformance(make: Callable[[], Robot], expected: Sequence[str] = ()) -> Iterator[Finding]:
    """Check the driver of a robot that may only be damped; `expected` are joints that it must have.

    `make` returns a new driver, before `__enter__`. An exception ends the check.
    """
    try:
        session = _run(make())
    except Exception as error:
        yield Finding("a session works", f"{type(error).__name__}: {error}")
        return
    yield Finding("a session works", "")
    joints = session.robot.joints
    if expected:
        wrong = set(joints) ^ set(expected)
        yield Finding(
            "the joints are those of the policy", f"these differ: {', '.join(sorted(wrong))}" if wrong else ""
        )
    for claim, check in CHECKS.items():
        try:
            problem = check(session)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        yield Finding(claim, problem)
    yield Finding("an error in the with statement leaves it, and the robot can be entered again", _error_leaves(make))


def _run(robot: Robot) -> Session:
    """Connect to the robot, read and send damping for `SECONDS`, and disconnect."""
    session = Session(robot)
    with robot as entered:
        if entered is not robot:
            raise ValueError(f"__enter__ must return the robot; it returned {entered!r}")
        session.period_s = 1 / (robot.loop_hz or min(max(HZ, robot.rates_hz[0]), robot.rates_hz[1]))
        begun, tick = time.monotonic(), 0
        robot.begin_rollout()
        while time.monotonic() < begun + SECONDS:
            _read(session)
            start = time.monotonic()
            session.returned.append(robot.send(Command.damping(len(robot.joints))))
            session.send_s.append(time.monotonic() - start)
            tick += 1
            time.sleep(max(begun + tick * session.period_s - time.monotonic(), 0.0))
        robot.end_rollout()
        for name, command in _invalid(len(robot.joints)).items():
            with suppress(ValueError):
                robot.send(command)
                session.accepted.append(name)
    session.summary = robot.summary()
    return session


def _read(session: Session) -> None:
    before = time.monotonic()
    state = session.robot.read()
    after = time.monotonic()
    session.read_s.append(after - before)
    if state is not None:
        values = tuple(np.array(part) for part in state.parts)
        session.readings.append(Reading(state, values, before, after))


def _invalid(num_joints: int) -> dict[str, Command]:
    """Return invalid commands; they have no gains and torques, in case the robot receives them."""
    damping = Command.damping(num_joints)
    return {
        "NaN": replace(damping, torque=np.full(num_joints, math.nan)),
        "a gain per joint too many": replace(damping, kp=np.zeros(num_joints + 1)),
    }


def _error_leaves(make: Callable[[], Robot]) -> str:
    try:
        with make():
            raise KeyError("check")
    except KeyError:
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "__exit__ returned True, which hides every error"


# -- checks of a session: each returns the problem, or nothing ---------------------------------------------------------


def _joints(session: Session) -> str:
    joints = session.robot.joints
    good = isinstance(joints, tuple) and joints and len(set(joints)) == len(joints)
    return "" if good and all(isinstance(name, str) for name in joints) else f"got {joints!r}"


def _members(session: Session) -> str:
    robot = session.robot
    kinds = {"tripped": str, "round_trip_s": float, "estimates_velocity": bool, "shares_computer": bool}
    wrong = [
        f"{name} is {getattr(robot, name)!r}" for name, kind in kinds.items() if type(getattr(robot, name)) is not kind
    ]
    low, high = robot.rates_hz
    if not 0 <= low <= high:
        wrong.append(f"rates_hz is {robot.rates_hz}")
    if robot.loop_hz is not None and not low <= robot.loop_hz <= high:
        wrong.append(f"loop_hz {robot.loop_hz} is outside of rates_hz {robot.rates_hz}")
    return "; ".join(wrong)


def _arrive(session: Session) -> str:
    found = len(session.readings)
    return "" if found >= MIN_STATES else f"{found} in {SECONDS:g} s; {MIN_STATES} are needed"


def _shapes(session: Session) -> str:
    wrong = [one.state for one in session.readings if not one.state.fits(len(session.robot.joints))]
    return f"{wrong[0]}" if wrong else ""


def _values(session: Session) -> str:
    for state, values, *_ in session.readings:
        if not all(np.isfinite(part).all() for part in values):
            return f"state {state.sequence} has values that are not finite"
        length = float(np.linalg.norm(values[4]))
        if not 0.9 < length < 1.1:
            return f"the quaternion of state {state.sequence} has length {length:.3g}"
    return ""


def _once(session: Session) -> str:
    numbers = [one.state.sequence for one in session.readings]
    again = [number for last, number in pairwise(numbers) if number <= last]
    return f"sequence {again[0]} did not grow" if again else ""


def _stamps(session: Session) -> str:
    stamps = [one.state.stamp_s for one in session.readings]
    return "" if all(late > early for early, late in pairwise(stamps)) else "stamp_s did not grow"


def _received(session: Session) -> str:
    for state, _, _, after in session.readings:
        if not after - MAX_AGE_S <= state.received_s <= after:
            return f"received_s of state {state.sequence} is {after - state.received_s:.3g} s before its reading"
    return ""


def _copies(session: Session) -> str:
    for state, values, *_ in session.readings:
        if not all(map(np.array_equal, state.parts, values)):
            return f"state {state.sequence} changed after it was returned: return copies"
    return ""


def _quick(durations: Sequence[float], period_s: float) -> str:
    usual = float(np.median(durations))
    return "" if usual < SHARE_OF_PERIOD * period_s else f"takes {usual * 1e3:.2g} ms of {period_s * 1e3:.2g}"


def _sent(session: Session) -> str:
    for command in session.returned:
        if not isinstance(command, Command):
            return f"returned {command!r}; it must return the command as sent"
        command.check(len(session.robot.joints))
        if command.kp.any() or command.torque.any() or (command.kd < 0).any():
            return f"made {command} of a damping command"
    return ""


def _invalid_refused(session: Session) -> str:
    return f"took a command with {' and one with '.join(session.accepted)}" if session.accepted else ""


def _unknown_option(session: Session) -> str:
    try:
        type(session.robot).create({"no_such_option": 1}, session.robot.joints)
    except ValueError:
        return ""
    return "create took no_such_option=1"


def _summary(session: Session) -> str:
    json.dumps(session.summary)
    return "" if session.summary is None or isinstance(session.summary, dict) else f"returned {session.summary!r}"


CHECKS: dict[str, Callable[[Session], str]] = {
    "joints are different names, in a tuple": _joints,
    "the other members have their types and fit together": _members,
    "states arrive": _arrive,
    "states have the documented types and shapes": _shapes,
    "measurements are finite, and quaternions have length 1": _values,
    "every state is returned once, in the order of sequence": _once,
    "stamp_s grows": _stamps,
    "received_s is time.monotonic() at the arrival": _received,
    "a returned state does not change": _copies,
    "read does not block": lambda session: _quick(session.read_s, session.period_s),
    "send does not block": lambda session: _quick(session.send_s, session.period_s),
    "send returns the command as sent": _sent,
    "send refuses an invalid command with ValueError": _invalid_refused,
    "create refuses an unknown option with ValueError": _unknown_option,
    "summary returns None or JSON": _summary,
}
"""Claim -> the check of a session."""
