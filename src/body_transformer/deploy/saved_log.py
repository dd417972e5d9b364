"""A log on disk: log.json describes the run, and log.npz has an array per column of `log.columns`."""

from __future__ import annotations

import json
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..array_files import ArrayArchive
from ..documents import read_json
from ..errors import listing
from ..files import atomic_write, digest, sync
from ..schema import build, plain
from ..size_limits import MAX_JSON_BYTES
from .control import Filter
from .log import BAD_SHAPE, NO_STATE, Event, columns
from .observation import JointOrder
from .robot import COMMAND, State
from .runtime_config import RuntimeConfig
from .safety import SafetyConfig

ARRAYS, DESCRIPTION, FORMAT, VERSION = "log.npz", "log.json", "body_transformer.deploy_log", 1
DIGEST = "arrays_sha256"
"""Key of log.json with the digest of log.npz; older logs have none."""
NEW_COLUMN = "linear_velocity"
"""A column that older logs lack; no robot estimated the velocity then."""
_BROKEN = (
    *(ValueError, OSError, EOFError, KeyError, RecursionError, MemoryError, RuntimeError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error, struct.error, SyntaxError, tokenize.TokenError),
)
"""Errors that reading a broken file may raise; NumPy parses a file's header as a Python literal."""


@dataclass(frozen=True)
class LoggedStop:
    """Reason for a run's early end, in words."""

    reason: str
    detail: str

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.reason, self.detail)))


@dataclass(frozen=True)
class LoggedLimits:
    """Limits of the contract, one entry per joint."""

    position: tuple[tuple[float, float], ...]
    """(low, high), rad."""
    velocity: tuple[float, ...]
    torque: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class LogDescription:
    """Content of log.json. Keys with a default may be missing; unknown keys are ignored."""

    experiment: str | None
    joints: tuple[str, ...]
    """In the contract's order, as in every column."""
    robot_joints: tuple[str, ...]
    num_ticks: int
    kept_ticks: int
    """Ticks in the arrays: the newest part of a long run."""
    loop_hz: float
    policy_hz: float
    seconds: float
    """Length of the whole loop."""
    policy_seconds: float
    missed: int
    """Missed deadlines."""
    work_ms: Mapping[str, float]
    """p50, p99 and max of a full control step; empty if the policy never ran."""
    stop: LoggedStop | None
    interventions: Mapping[str, int]
    """Reason -> number."""
    events: tuple[Event, ...]
    config: RuntimeConfig
    safety: SafetyConfig
    limits: LoggedLimits
    reasons: tuple[str, ...]
    """Names of the bits of the column `interventions`."""
    phases: tuple[str, ...]
    """Names of the numbers of the column `phase`."""
    filter: Filter | None
    """The low-pass filter that the run used."""
    command: tuple[float, ...] = ()
    model_sha256: str = ""
    edited: tuple[str, ...] = ()
    """Edits of the contract since its export."""
    robot: str | None = None
    report: Mapping[str, Any] | None = None
    """The robot's own report."""

    def __post_init__(self) -> None:
        for name in ("loop_hz", "policy_hz"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0; got {getattr(self, name)}")
        for name in ("position", "velocity", "torque"):
            found = len(getattr(self.limits, name))
            if found != len(self.joints):
                raise ValueError(f"limits.{name} must have {len(self.joints)} entries, one per joint; got {found}")
        if unknown := set(self.interventions) - set(self.reasons):
            raise ValueError(f"interventions has keys that are not reasons: {listing(sorted(unknown))}")


@dataclass(frozen=True)
class SavedLog:
    """A log as stored in a folder."""

    rows: Mapping[str, NDArray[Any]]
    """Column -> array, a row per tick."""
    description: LogDescription

    def save(self, folder: Path) -> Path:
        """Write log.npz, then log.json: both or neither. An existing log is not replaced."""
        if holds_log(folder):
            raise FileExistsError(f"{str(folder)!r} already holds a log")
        content = {"format": FORMAT, "version": VERSION, "command_axis": COMMAND, **plain(self.description)}
        content["ticks"] = self.description.num_ticks
        _as_json(content)  # an invalid value is an error before anything is written

        def write(path: Path) -> None:
            with path.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **self.rows)

        arrays = atomic_write(folder / ARRAYS, write)
        try:
            atomic_write(folder / DESCRIPTION, _as_json({**content, DIGEST: digest(arrays)}))
            sync(folder)  # a robot's computer is often switched off next
        except BaseException:
            arrays.unlink(missing_ok=True)
            raise
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> SavedLog:
        """Read both files; refuse files that do not belong together or are damaged."""
        folder = Path(folder)
        for name in (ARRAYS, DESCRIPTION):
            if not (folder / name).is_file():
                raise FileNotFoundError(f"no log in {str(folder)!r}: {name} is missing")
        try:
            content = read_json(folder / DESCRIPTION, strict=False, max_bytes=4 * MAX_JSON_BYTES)
            _check_format(content)
            if content.get(DIGEST) not in (None, digest(folder / ARRAYS)):
                raise ValueError(f"{ARRAYS} is not the one that {DESCRIPTION} describes")
            known = {item.name for item in fields(LogDescription)}
            description = build(LogDescription, {key: value for key, value in content.items() if key in known})
            with ArrayArchive(folder / ARRAYS) as arrays:
                rows = {name: arrays[name] for name in arrays}
            rows.setdefault(NEW_COLUMN, np.zeros((description.kept_ticks, 3)))
            _check_rows(rows, description)
        except _BROKEN as error:
            raise ValueError(f"the log in {str(folder)!r} is damaged: {str(error) or type(error).__name__}") from None
        return cls(rows, description)

    def states(self) -> Iterator[State | None]:
        """Yield the state read in each tick, in the robot's own order."""
        rows, order = self.rows, JointOrder(self.description.joints, self.description.robot_joints)
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
                rows["linear_velocity"][k],
            )


def holds_log(folder: Path) -> bool:
    """Return whether the folder holds a log, or a part of one."""
    return any((folder / name).exists() for name in (ARRAYS, DESCRIPTION))


def _as_json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _check_format(content: Any) -> None:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{DESCRIPTION} does not describe a log: its format must be {FORMAT!r}")
    if content.get("version") != VERSION:
        raise ValueError(f"it has version {content.get('version')}; version {VERSION} is expected")


def _check_rows(rows: Mapping[str, NDArray[Any]], description: LogDescription) -> None:
    obs_dim = rows["obs"].shape[1] if "obs" in rows and rows["obs"].ndim == 2 else -1
    for name, (kind, shape) in columns(len(description.joints), obs_dim).items():
        wanted = (description.kept_ticks, *shape)
        if name not in rows or rows[name].dtype != kind or rows[name].shape != wanted:
            raise ValueError(f"{name} is not {np.dtype(kind)} {wanted}")
    phases = rows["phase"]
    if phases.size and not 0 <= phases.min() <= phases.max() < len(description.phases):
        raise ValueError(f"phase is from {phases.min()} to {phases.max()}; phases has {len(description.phases)} names")


# -- the simulated robot's report on the link --------------------------------------------------------------------------

TROUBLE = {
    "timeouts": "the robot damped by itself {:g} times, as no command came",
    "refused": "it refused {:g} datagrams",
    "lag_s": "its computer was {:.2f} s too slow for real time",
}
"""Key of the report -> meaning of a value above 0."""


def link_trouble(report: Mapping[str, Any]) -> list[str]:
    """Return a sentence per problem of the link in a robot's report; none if it reports no problem."""
    found = []
    for key, words in TROUBLE.items():
        value = report.get(key)
        if isinstance(value, int | float) and math.isfinite(value) and value > 0:
            found.append(words.format(value))
    return found
