"""What the simulated robot can be asked for, and what it reports; known to both sides, without the simulator."""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any

from ...errors import unknown
from ...schema import build
from ..link import DatagramError

DEFAULT_PORT = 47001
STARTS = ("home", "lying", "hanging")
FAULTS = ("", "silent", "nan", "absurd", "frozen")
LIGHTEST_PAYLOAD_KG = -4.0
"""The trunk has 4.7 kg."""


@dataclass(frozen=True)
class SimOptions:
    """The simulated robot and its network."""

    latency_ms: float = 0.0
    """From a measurement to the command that answers it: half of it on the way out, half on the way back."""
    jitter_ms: float = 0.0
    """Every datagram is up to this much later, by chance: they overtake each other."""
    loss_percent: float = 0.0
    """Datagrams that never arrive, either way."""
    duplicate_percent: float = 0.0
    """Datagrams that arrive twice, either way."""
    noise: float = 0.0
    """On measurements, times training's: joints ±0.01 rad and ±1.5 rad/s, gyroscope ±0.2 rad/s, tilt ±0.05 rad."""
    payload_kg: float = 0.0
    """Added to the trunk; negative makes it lighter."""
    start: str = "home"
    """`home`: stands by itself until the first command; `lying`: limp on the floor; `hanging`: trunk on a stand."""
    start_joints: tuple[float, ...] = ()
    """Joint angles at the start, in the robot's order; the start's own if empty."""
    seed: int = 0
    """Of noise, loss and jitter."""
    state_hz: float = 500.0
    """Measurements sent a second."""
    physics_hz: float = 1000.0
    """Physics and motor controllers; a multiple of `state_hz`, 500 or more."""
    real_time_factor: float = 1.0
    """2: twice as fast as the real one. Every time above is the robot's own."""
    command_timeout_ms: float = 50.0
    """So long after the last command the robot damps by itself."""
    fault: str = ""
    """What breaks `fault_at_s` after the first command: `silent`, `nan`, `absurd` or `frozen` measurements."""
    fault_at_s: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float | int) and not isfinite(value):
                raise ValueError(f"{field.name} of the simulated robot is {value}; it must be finite")
        self._at_least(0.0, "latency_ms", "jitter_ms", "noise", "fault_at_s", "seed")
        self._percent("loss_percent", "duplicate_percent")
        self._positive("state_hz", "real_time_factor", "command_timeout_ms")
        self._at_least(500.0, "physics_hz")
        self._at_least(LIGHTEST_PAYLOAD_KG, "payload_kg")
        ratio = self.physics_hz / self.state_hz
        if abs(ratio - round(ratio)) > 1e-9:
            raise ValueError(f"physics_hz {self.physics_hz} is no multiple of state_hz {self.state_hz}")
        if self.start not in STARTS:
            raise ValueError(unknown("start", self.start, list(STARTS)))
        if self.fault not in FAULTS:
            raise ValueError(unknown("fault", self.fault, list(FAULTS[1:])))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SimOptions:
        """The reverse of `to_dict`; unknown keys and values of another type are errors. `start_joints` may be text,
        numbers with commas between, as a command line has it."""
        joints = values.get("start_joints")
        if isinstance(joints, str):
            values = values | {"start_joints": _numbers(joints)}
        return build(cls, values, what="option of the simulated robot")

    def _at_least(self, low: float, *names: str) -> None:
        for name in names:
            if getattr(self, name) < low:
                raise ValueError(f"{name} of the simulated robot is {getattr(self, name)}; it must be {low:g} or more")

    def _positive(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} of the simulated robot is {getattr(self, name)}; it must be above 0")

    def _percent(self, *names: str) -> None:
        for name in names:
            if not 0 <= getattr(self, name) <= 100:
                raise ValueError(f"{name} of the simulated robot is {getattr(self, name)}; it must be from 0 to 100")


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise ValueError(f"start_joints are numbers with commas between; got {text!r}") from None


@dataclass(frozen=True)
class Outcome:
    """What became of the robot's body, from the beginning of the rollout (or the session) to its end."""

    fell: bool
    """Trunk on the floor, rolled over 0.8 rad, pitched over 1.6 rad, or lower than 0.15 m: training's terminations."""
    fell_after_s: float
    """-1 if it did not."""
    duration_s: float
    distance_m: float
    """Forward, along the heading at the beginning."""
    sideways_m: float
    mean_speed_mps: float
    """Forward in the body's own frame, mean over time."""
    max_tilt_rad: float
    max_torque_nm: float


@dataclass(frozen=True)
class SimReport(Outcome):
    """And of the link to it."""

    commands: int
    """Commands that came in, in the whole session."""
    timeouts: int
    """Times that the robot damped because no command came."""
    refused: int
    """Datagrams that were not let in: damaged, old, repeated, from strangers."""
    lag_s: float
    """Time by which the computer was too slow for real time."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SimReport:
        """The reverse of `to_dict`; what else is there is left out."""
        return cls(**{field.name: values[field.name] for field in fields(cls)})

    def pack(self) -> bytes:
        """As REPORT carries it."""
        return _REPORT.pack(*(float(getattr(self, field.name)) for field in fields(self)))

    @classmethod
    def unpack(cls, payload: bytes) -> SimReport:
        """The reverse of `pack`."""
        if len(payload) != _REPORT.size:
            raise DatagramError("payload length")
        values = _REPORT.unpack(payload)
        if not all(isfinite(value) for value in values):
            raise DatagramError("values")
        types = {"bool": bool, "int": int, "float": float}
        return cls(*(types[str(field.type)](value) for field, value in zip(fields(cls), values, strict=True)))


_REPORT = struct.Struct(f"<{len(fields(SimReport))}d")
