"""Options, network and report of the simulated robot. Both sides import them, without the simulator."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf, isfinite, isinf
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from ...schema import build, check_fields
from ..link import DatagramError

DEFAULT_PORT = 47001


@dataclass(frozen=True)
class SimOptions:
    """Options of the simulated robot and its network."""

    latency_ms: float = 0.0
    """From a measurement to the command that answers it: half on the way out, half on the way back."""
    jitter_ms: float = 0.0
    """Each datagram is delayed further by a random time up to this, so they overtake each other."""
    loss_percent: float = 0.0
    """Datagrams that never arrive, in either direction."""
    duplicate_percent: float = 0.0
    """Datagrams that arrive twice, in either direction."""
    noise: float = 0.0
    """Measurement noise as a multiple of the training's: joints ±0.01 rad and ±1.5 rad/s, gyroscope ±0.2 rad/s, tilt
    ±0.05 rad."""
    payload_kg: float = 0.0
    """Mass added to the trunk; negative makes it lighter."""
    friction: float = 0.0
    """Friction of the robot on the floor; 0: that of the model."""
    start: Literal["home", "held", "lying", "hanging"] = "home"
    """`home`: stands by itself until the first command; `held`: a stand holds the standing robot until the policy
    begins; `lying`: limp on the floor; `hanging`: on a stand, with the feet in the air."""
    start_joints: tuple[float, ...] = ()
    """Joint angles at the start, in the robot's order; those of `start` if empty."""
    seed: int = 0
    """Seed of noise, loss and jitter."""
    state_hz: float = 500.0
    """Measurements sent per second."""
    physics_hz: float = 1000.0
    """Rate of physics and motor controllers: a multiple of `state_hz`, 500 or more."""
    real_time_factor: float = 1.0
    """2: twice as fast as real time. Every time above is on the robot's clock."""
    command_timeout_ms: float = 50.0
    """Time after the last command at which the robot damps by itself."""
    fault: Literal["", "silent", "nan", "absurd", "frozen"] = ""
    """Measurements from `fault_at_s` after the first command on: `silent`, `nan`, `absurd` or `frozen`."""
    fault_at_s: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self, non_negative=_NON_NEGATIVE, signed=("payload_kg",))
        for name, (low, high) in _RANGES.items():
            if not low <= getattr(self, name) <= high:
                wanted = f"{low:g} or more" if isinf(high) else f"from {low:g} to {high:g}"
                raise ValueError(f"{name} must be {wanted}; got {getattr(self, name):g}")
        ratio = self.physics_hz / self.state_hz
        if abs(ratio - round(ratio)) > 1e-9:
            raise ValueError(f"physics_hz {self.physics_hz} is not a multiple of state_hz {self.state_hz}")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SimOptions:
        """Build options; unknown keys and values of another type are refused.

        On a command line `start_joints` is text, numbers separated by commas.
        """
        joints = values.get("start_joints")
        if isinstance(joints, str):
            values = {**values, "start_joints": _numbers(joints)}
        return build(cls, values, what="option of the simulated robot")


_NON_NEGATIVE = (
    "latency_ms",
    "jitter_ms",
    "loss_percent",
    "duplicate_percent",
    "noise",
    "friction",
    "seed",
    "fault_at_s",
)
_RANGES = {
    "loss_percent": (0.0, 100.0),
    "duplicate_percent": (0.0, 100.0),
    "physics_hz": (500.0, inf),
    "payload_kg": (-4.0, inf),  # the A1's trunk weighs 4.7 kg
}


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise ValueError(f"start_joints must be numbers separated by commas; got {text!r}") from None


@dataclass(frozen=True)
class Outcome:
    """Summary of the robot's motion during the rollout, or the session if no rollout was begun."""

    fell: bool
    """Trunk on the floor, tilted too far or too low. The A1 may roll by 0.8 rad, pitch by 1.6 rad and be as low as
    0.15 m, as in its training. Other robots may tilt by 1.2 rad and be half as high as they stand."""
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
    """The summary of the motion, and of the link."""

    commands: int
    """Commands received in the whole session."""
    timeouts: int
    """How often the robot damped because no command came."""
    refused: int
    """Datagrams that were refused: damaged, old, repeated, or from another sender."""
    lag_s: float
    """Time that was lost because the computer was too slow for real time."""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SimReport:
        """Build a report; unknown keys are ignored."""
        return cls(**{field.name: values[field.name] for field in fields(cls)})

    def pack(self) -> bytes:
        """Return the payload of REPORT."""
        return _REPORT.pack(*(float(getattr(self, field.name)) for field in fields(self)))

    @classmethod
    def unpack(cls, payload: bytes) -> SimReport:
        """Read the payload of REPORT."""
        if len(payload) != _REPORT.size:
            raise DatagramError("payload length")
        values = _REPORT.unpack(payload)
        if not all(isfinite(value) for value in values):
            raise DatagramError("values")
        types = {"bool": bool, "int": int, "float": float}
        return cls(*(types[str(field.type)](value) for field, value in zip(fields(cls), values, strict=True)))


_REPORT = struct.Struct(f"<{len(fields(SimReport))}d")


# -- the network -------------------------------------------------------------------------------------------------------

Item = TypeVar("Item")


class Channel(Generic[Item]):
    """One direction of an unreliable network: items arrive late, out of order, twice, or not at all."""

    def __init__(self, options: SimOptions, *seed: int) -> None:
        self._delay_s, self._jitter_s = options.latency_ms / 2e3, options.jitter_ms / 1e3
        self._loss, self._duplicate = options.loss_percent / 100, options.duplicate_percent / 100
        self._rng = np.random.default_rng([options.seed, *seed])
        self._waiting: list[tuple[float, int, Item]] = []
        self._count = 0

    def put(self, now_s: float, item: Item) -> None:
        """Send an item."""
        rng = self._rng
        if self._loss and rng.random() < self._loss:
            return
        copies = 2 if self._duplicate and rng.random() < self._duplicate else 1
        for _ in range(copies):
            jitter_s = rng.uniform(0.0, self._jitter_s) if self._jitter_s else 0.0
            self._count += 1  # without jitter items stay in order
            heapq.heappush(self._waiting, (now_s + self._delay_s + jitter_s, self._count, item))

    def take(self, now_s: float) -> list[Item]:
        """Return the items that have arrived."""
        arrived = []
        while self._waiting and self._waiting[0][0] <= now_s + 1e-9:
            arrived.append(heapq.heappop(self._waiting)[2])
        return arrived

    def clear(self) -> None:
        """Drop all items in transit."""
        self._waiting.clear()
