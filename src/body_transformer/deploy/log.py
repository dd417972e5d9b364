"""The log of a run, tick by tick: kept in memory that is allocated beforehand, written when the robot is in damping."""

from __future__ import annotations

import json
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import atomic_write, digest, sync
from .observation import JointOrder
from .robot import COMMAND, Command, State

ARRAYS, DESCRIPTION, FORMAT, VERSION = "log.npz", "log.json", "body_transformer.deploy_log", 1
DIGEST = "arrays_sha256"
"""Key of log.json with the digest of log.npz; older logs have none."""
NO_STATE, GOOD_SHAPE, BAD_SHAPE = 0, 1, 2
"""Column `state`: no new state in this tick, one of the right shape, one of a wrong shape."""
MAX_EVENTS = 1000
_BROKEN = (
    *(ValueError, OSError, EOFError, KeyError, RecursionError, MemoryError, RuntimeError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error, struct.error, SyntaxError, tokenize.TokenError),
)
"""Errors that reading a broken file may raise; NumPy parses a file's header as a Python literal."""


def _columns(num_joints: int, obs_dim: int) -> dict[str, tuple[type[np.generic], tuple[int, ...]]]:
    """Return the columns: name -> type and shape of one tick's entry, joints in the contract's order."""
    joints = (num_joints,)
    return {
        "tick": (np.int64, ()),
        "now_s": (np.float64, ()),  # our clock, when the state was read
        "late_ms": (np.float64, ()),  # delay of the tick's begin
        "work_ms": (np.float64, ()),  # from the begin until the command was sent
        "policy_ms": (np.float64, ()),  # the policy's share; NaN in ticks that did not ask it
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
        "obs": (np.float32, (obs_dim,)),
        "action": (np.float64, joints),
        "target": (np.float64, joints),  # before filter, interpolation and limits
        "command": (np.float64, (len(COMMAND), num_joints)),  # NaN where there was an error instead
        "sent": (np.float64, (len(COMMAND), num_joints)),  # NaN where nothing was sent
    }


def num_bytes(ticks: int, num_joints: int, obs_dim: int) -> int:
    """Return the memory that the log of so many ticks takes."""
    columns = _columns(num_joints, obs_dim).values()
    return ticks * sum(np.dtype(kind).itemsize * math.prod(shape) for kind, shape in columns)


@dataclass(frozen=True)
class Event:
    """A rare event, with its time."""

    tick: int
    time_s: float
    kind: str
    """phase, stop, request, error; or afterwards: the first stop after the planned end."""
    text: str


class Log:
    """A ring buffer of the newest `capacity` ticks."""

    def __init__(self, capacity: int, order: JointOrder, obs_dim: int) -> None:
        self.capacity, self._order = capacity, order
        self.arrays = {
            name: np.empty((capacity, *shape), kind)
            for name, (kind, shape) in _columns(len(order.contract_joints), obs_dim).items()
        }
        for array in self.arrays.values():
            array.fill(0)  # so that no page is first touched inside the loop
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
        """Note a rare event; beyond MAX_EVENTS it is dropped."""
        if len(self.events) < MAX_EVENTS:
            self.events.append(Event(tick, time_s, kind, text))

    def _add_state(self, row: dict[str, NDArray[Any]], state: State | None) -> None:
        row["state"][...] = NO_STATE if state is None else GOOD_SHAPE if self._fits(state) else BAD_SHAPE
        if state is None or row["state"] != GOOD_SHAPE:
            return
        for name in ("joint_pos", "joint_vel", "joint_torque"):
            row[name][...] = self._order.from_robot(getattr(state, name))
        for name in ("sequence", "stamp_s", "received_s", "angular_velocity", "quaternion"):
            row[name][...] = getattr(state, name)

    def _fits(self, state: State) -> bool:
        return state.fits(len(self._order.robot_joints)) and -(2**63) <= state.sequence < 2**63

    def rows(self) -> dict[str, NDArray[Any]]:
        """Return every column, the oldest tick first."""
        if self.num_ticks <= self.capacity:
            return {name: array[: self.num_ticks] for name, array in self.arrays.items()}
        return {name: np.roll(array, -self._row - 1, axis=0) for name, array in self.arrays.items()}

    def save(self, folder: Path, description: dict[str, Any]) -> Path:
        """Write log.npz, then log.json with the `description`: both or neither. An existing log stays."""
        if holds_log(folder):
            raise FileExistsError(f"{str(folder)!r} already holds a log")
        rows = self.rows()
        content = {
            "format": FORMAT,
            "version": VERSION,
            "joints": self._order.contract_joints,
            "robot_joints": self._order.robot_joints,
            "num_ticks": self.num_ticks,
            "kept_ticks": len(rows["tick"]),
            "command_axis": COMMAND,
            **description,
            "events": [vars(event) for event in self.events],
        }
        _as_json(content)  # fails, if it does, before anything is written

        def write(path: Path) -> None:
            with path.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **rows)

        arrays = atomic_write(folder / ARRAYS, write)
        try:
            sync(arrays)
            sync(atomic_write(folder / DESCRIPTION, _as_json({**content, DIGEST: digest(arrays)})))
            sync(folder)  # a robot's computer is often switched off next
        except BaseException:
            arrays.unlink(missing_ok=True)
            raise
        return folder


def holds_log(folder: Path) -> bool:
    """Return whether the folder holds a log, or a part of one."""
    return any((folder / name).exists() for name in (ARRAYS, DESCRIPTION))


def _as_json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


@dataclass(frozen=True)
class SavedLog:
    """A log, read from its folder."""

    rows: dict[str, NDArray[Any]]
    description: dict[str, Any]

    @classmethod
    def load(cls, folder: str | Path) -> SavedLog:
        """Read both files; refuse files that do not belong together or are damaged."""
        folder = Path(folder)
        for name in (ARRAYS, DESCRIPTION):
            if not (folder / name).is_file():
                raise FileNotFoundError(f"no log in {str(folder)!r}: {name} is not there")
        try:
            description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
            _check_digest(description, folder / ARRAYS)
            with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
                rows = {name: arrays[name] for name in arrays.files}
        except _BROKEN as error:
            raise ValueError(f"the log in {str(folder)!r} is damaged: {str(error) or type(error).__name__}") from None
        if not isinstance(description, dict) or description.get("format") != FORMAT:
            raise ValueError(f"{str(folder / DESCRIPTION)!r} does not describe a log: its format must be {FORMAT!r}")
        if description.get("version") != VERSION:
            raise ValueError(
                f"the log in {str(folder)!r} has version {description.get('version')}; version {VERSION} is expected"
            )
        for key in ("joints", "robot_joints"):
            names = description.get(key)
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise ValueError(f"the log in {str(folder)!r} is damaged: {key} must be names; got {names!r}")
        _check_rows(rows, description, folder)
        return cls(rows, description)

    def states(self) -> Iterator[State | None]:
        """Yield the state read in each tick, in the robot's own order."""
        rows, order = self.rows, JointOrder(self.description["joints"], self.description["robot_joints"])
        for k, kind in enumerate(rows["state"]):
            if kind == NO_STATE:
                yield None
                continue
            if kind == BAD_SHAPE:
                none = np.zeros(0)
                yield State(0, 0.0, 0.0, none, none, none, none, none)
                continue
            pos, vel, torque = (order.to_robot(rows[name][k]) for name in ("joint_pos", "joint_vel", "joint_torque"))
            yield State(
                int(rows["sequence"][k]),
                float(rows["stamp_s"][k]),
                float(rows["received_s"][k]),
                pos,
                vel,
                torque,
                rows["angular_velocity"][k],
                rows["quaternion"][k],
            )


def _check_digest(description: Any, arrays: Path) -> None:
    expected = description.get(DIGEST) if isinstance(description, dict) else None
    if expected is not None and expected != digest(arrays):
        raise ValueError(f"{ARRAYS} is not the one that {DESCRIPTION} describes")


def _check_rows(rows: dict[str, NDArray[Any]], description: dict[str, Any], folder: Path) -> None:
    obs_dim = rows["obs"].shape[1] if "obs" in rows and rows["obs"].ndim == 2 else -1
    for name, (kind, shape) in _columns(len(description["joints"]), obs_dim).items():
        wanted = (description.get("kept_ticks"), *shape)
        if name not in rows or rows[name].dtype != kind or rows[name].shape != wanted:
            raise ValueError(f"the log in {str(folder)!r} is damaged: {name} is not {np.dtype(kind)} {wanted}")


# -- the simulated robot's report on the link --------------------------------------------------------------------------

TROUBLE = {
    "timeouts": "the robot damped by itself {:g} times, as no command came",
    "refused": "it refused {:g} datagrams",
    "lag_s": "its computer was {:.2f} s too slow for real time",
}
"""Key of the report -> meaning of a value above 0."""


def link_trouble(report: Mapping[str, Any]) -> list[str]:
    """Return sentences on the link's trouble in a robot's report; none if there was none, or it is not known."""
    found = []
    for key, words in TROUBLE.items():
        value = report.get(key)
        if isinstance(value, int | float) and math.isfinite(value) and value > 0:
            found.append(words.format(value))
    return found
