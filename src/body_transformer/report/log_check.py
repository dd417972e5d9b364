"""Check that the log of a deployment holds all that a page shows, in the right types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..deploy.log import DESCRIPTION, SavedLog
from .load import is_number


def _is_rate(value: Any) -> bool:
    return is_number(value) and value > 0


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_stop(value: Any) -> bool:
    return value is None or (
        isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("reason", "detail"))
    )


def _is_event(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and is_number(value.get("time_s"))
        and type(value.get("tick")) is int
        and all(isinstance(value.get(key), str) for key in ("kind", "text"))
    )


def _is_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(type(count) is int for count in value.values())


def _is_safety(value: Any) -> bool:
    rates = ("stale_ms", "max_tilt_rad", "torque_fraction")
    return isinstance(value, dict) and all(_is_rate(value.get(key)) for key in rates)


REQUIRED: dict[str, Callable[[Any], bool]] = {
    "experiment": lambda value: isinstance(value, str),
    "num_ticks": _is_rate,
    "loop_hz": _is_rate,
    "policy_hz": _is_rate,
    "seconds": is_number,
    "policy_seconds": is_number,
    "missed": is_number,
    "config": lambda value: isinstance(value, dict),
    "safety": _is_safety,
    "limits": lambda value: isinstance(value, dict),
    "reasons": _is_names,
    "phases": _is_names,
    "stop": _is_stop,
    "interventions": _is_counts,
    "events": lambda value: isinstance(value, list) and all(map(_is_event, value)),
}
"""Key of log.json -> check of its value."""
OPTIONAL: dict[str, Callable[[Any], bool]] = {
    "filter": lambda value: value is None or (isinstance(value, dict) and is_number(value.get("cutoff_hz"))),
    "command": lambda value: value is None or (isinstance(value, list) and all(map(is_number, value))),
}
"""The same for keys that a log may lack."""


def check_log(log: SavedLog, folder: Path) -> None:
    """Raise ValueError with the keys whose values cannot be used."""
    facts, num_joints = log.description, len(log.description["joints"])
    wrong = [key for key, fits in REQUIRED.items() if key not in facts or not fits(facts[key])]
    if not wrong:
        shapes = {"position": (num_joints, 2), "torque": (num_joints,)}
        wrong += [f"limits.{key}" for key, shape in shapes.items() if not _is_array(facts["limits"].get(key), shape)]
        wrong += ["interventions"] if not set(facts["interventions"]) <= set(facts["reasons"]) else []
        phases = log.rows["phase"]
        wrong += ["phases"] if phases.size and not 0 <= phases.min() <= phases.max() < len(facts["phases"]) else []
    wrong += [key for key, fits in OPTIONAL.items() if not fits(facts.get(key))]
    if wrong:
        raise ValueError(f"the log in {str(folder)!r} is damaged: {', '.join(wrong)} of {DESCRIPTION} cannot be used")
    if not len(log.rows["tick"]):
        raise ValueError(f"the log in {str(folder)!r} has no ticks: there is nothing to show")


def _is_array(value: Any, shape: tuple[int, ...]) -> bool:
    try:
        array = np.array(value, np.float64)
    except (TypeError, ValueError):
        return False
    return array.shape == shape and bool(np.isfinite(array).all())
