"""Check that the log of a deployment holds every value of the page, in the right type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..deploy.log import DESCRIPTION, SavedLog
from .load import is_number

Check = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_rate(value: Any) -> bool:
    return is_number(value) and value > 0


def _list(fits: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _mapping(**fits: Check) -> Check:
    """Return a check of a mapping that must have these keys, and may have others."""
    return lambda value: isinstance(value, dict) and all(key in value and fits[key](value[key]) for key in fits)


def _or_none(fits: Check) -> Check:
    return lambda value: value is None or fits(value)


REQUIRED: dict[str, Check] = {
    "experiment": _is_text,
    "num_ticks": _is_rate,
    "loop_hz": _is_rate,
    "policy_hz": _is_rate,
    "seconds": is_number,
    "policy_seconds": is_number,
    "missed": is_number,
    "config": _mapping(),
    "safety": _mapping(stale_ms=_is_rate, max_tilt_rad=_is_rate, torque_fraction=_is_rate),
    "limits": _mapping(),
    "reasons": _list(_is_text),
    "phases": _list(_is_text),
    "stop": _or_none(_mapping(reason=_is_text, detail=_is_text)),
    "interventions": lambda value: isinstance(value, dict) and all(type(count) is int for count in value.values()),
    "events": _list(_mapping(time_s=is_number, tick=lambda tick: type(tick) is int, kind=_is_text, text=_is_text)),
}
"""Key of log.json -> check of its value."""
OPTIONAL = {"filter": _or_none(_mapping(cutoff_hz=is_number)), "command": _or_none(_list(is_number))}
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
