"""The log of a run, tick by tick, in memory that is allocated beforehand. `saved_log` writes it after the run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .observation import JointOrder
from .robot import COMMAND, Command, State

NO_STATE, GOOD_SHAPE, BAD_SHAPE = 0, 1, 2
"""Column `state`: no new state in this tick, one of the right shape, one of a wrong shape."""
MAX_EVENTS = 1000


def columns(num_joints: int, obs_dim: int) -> dict[str, tuple[type[np.generic], tuple[int, ...]]]:
    """Return the columns: name -> type and shape of one tick's entry, joints in the contract's order."""
    joints = (num_joints,)
    return {
        "tick": (np.int64, ()),
        "now_s": (np.float64, ()),  # the controller's clock when the state was read
        "late_ms": (np.float64, ()),  # delay of the tick's start
        "work_ms": (np.float64, ()),  # from the tick's start until the command was sent
        "policy_ms": (np.float64, ()),  # the policy's share; NaN in ticks that did not call it
        "age_ms": (np.float64, ()),
        "missed": (np.int64, ()),
        "phase": (np.int8, ()),
        "interventions": (np.int64, ()),  # one bit per reason
        "state": (np.int8, ()),
        "sequence": (np.int64, ()),
        "stamp_s": (np.float64, ()),
        "received_s": (np.float64, ()),
        "joint_pos": (np.float64, joints),
        "joint_vel": (np.float64, joints),
        "joint_torque": (np.float64, joints),
        "angular_velocity": (np.float64, (3,)),
        "quaternion": (np.float64, (4,)),
        "linear_velocity": (np.float64, (3,)),
        "obs": (np.float32, (obs_dim,)),
        "action": (np.float64, joints),
        "target": (np.float64, joints),  # before filter, interpolation and limits
        "command": (np.float64, (len(COMMAND), num_joints)),  # NaN where there was an error instead
        "sent": (np.float64, (len(COMMAND), num_joints)),  # NaN where nothing was sent
    }


def num_bytes(ticks: int, num_joints: int, obs_dim: int) -> int:
    """Return the size in bytes of a log of `ticks` ticks."""
    entries = columns(num_joints, obs_dim).values()
    return ticks * sum(np.dtype(kind).itemsize * math.prod(shape) for kind, shape in entries)


@dataclass(frozen=True)
class Event:
    """A rare event, with its time."""

    tick: int
    time_s: float
    kind: str
    """phase, stop, request, error or afterwards (the first stop after the planned end)."""
    text: str


class Log:
    """A ring buffer of the newest `capacity` ticks."""

    def __init__(self, capacity: int, order: JointOrder, obs_dim: int) -> None:
        self.capacity, self._order = capacity, order
        self.arrays = {
            name: np.empty((capacity, *shape), kind)
            for name, (kind, shape) in columns(len(order.contract_joints), obs_dim).items()
        }
        for array in self.arrays.values():
            array.fill(0)  # touches every memory page before the loop does
        self.events: list[Event] = []
        self.num_ticks = 0
        self._row = -1

    def add(self, state: State | None, command: Command | None, sent: Command | None, **values: Any) -> None:
        """Write a tick's row: its state, the command as computed and as sent, and the other columns by name."""
        self._row = (self._row + 1) % self.capacity
        self.num_ticks += 1
        row = {name: array[self._row, ...] for name, array in self.arrays.items()}
        for name, value in values.items():
            row[name][...] = value
        for name, one in (("command", command), ("sent", sent)):
            if one is None:
                row[name].fill(math.nan)
            else:
                row[name][...] = self._order.from_robot(np.array(one.parts))
        self._add_state(row, state)

    def event(self, tick: int, time_s: float, kind: str, text: str) -> None:
        """Record an event, unless there are MAX_EVENTS already."""
        if len(self.events) < MAX_EVENTS:
            self.events.append(Event(tick, time_s, kind, text))

    def _add_state(self, row: dict[str, NDArray[Any]], state: State | None) -> None:
        row["state"][...] = NO_STATE if state is None else GOOD_SHAPE if self._fits(state) else BAD_SHAPE
        if state is None or row["state"] != GOOD_SHAPE:
            return
        for name in ("joint_pos", "joint_vel", "joint_torque"):
            row[name][...] = self._order.from_robot(getattr(state, name))
        for name in ("sequence", "stamp_s", "received_s", "angular_velocity", "quaternion", "linear_velocity"):
            row[name][...] = getattr(state, name)

    def _fits(self, state: State) -> bool:
        return state.fits(len(self._order.robot_joints)) and -(2**63) <= state.sequence < 2**63

    def rows(self) -> dict[str, NDArray[Any]]:
        """Return every column, the oldest tick first."""
        if self.num_ticks <= self.capacity:
            return {name: array[: self.num_ticks] for name, array in self.arrays.items()}
        return {name: np.roll(array, -self._row - 1, axis=0) for name, array in self.arrays.items()}
