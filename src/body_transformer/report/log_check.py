"""Is everything in a deployment's log that a page shows, and of the right kind?"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..deploy.log import DESCRIPTION, SavedLog


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_rate(value: Any) -> bool:
    return is_number(value) and value > 0


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


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


NEEDED: dict[str, Callable[[Any], bool]] = {
    "experiment": lambda value: isinstance(value, str),
    "num_ticks": _is_rate,
    "loop_hz": _is_rate,
    "policy_hz": _is_rate,
    "seconds": is_number,
    "policy_seconds": is_number,
    "missed": is_number,
    "config": lambda value: isinstance(value, dict),
    "safety": lambda value: (
        isinstance(value, dict)
        and all(_is_rate(value.get(key)) for key in ("stale_ms", "max_tilt_rad", "torque_fraction"))
    ),
    "limits": lambda value: isinstance(value, dict),
    "reasons": _is_words,
    "phases": _is_words,
    "stop": _is_stop,
    "interventions": _is_counts,
    "events": lambda value: isinstance(value, list) and all(map(_is_event, value)),
}
"""Key of `log.json` -> whether what stands there can be used."""


OPTIONAL: dict[str, Callable[[Any], bool]] = {
    "filter": lambda value: value is None or (isinstance(value, dict) and is_number(value.get("cutoff_hz"))),
    "command": lambda value: value is None or (isinstance(value, list) and all(map(is_number, value))),
}
"""The same for what a log may lack."""


def check(log: SavedLog, folder: Path) -> None:
    """An error says what of the log cannot be used."""
    said, size = log.description, len(log.description["joints"])
    wrong = [key for key, fits in NEEDED.items() if key not in said or not fits(said[key])]
    if not wrong:
        limits = said["limits"]
        wrong += [f"limits.{key}" for key, shape in (("position", (size, 2)), ("torque", (size,)))
                  if not _is_array(limits.get(key), shape)]  # fmt: skip
        wrong += ["interventions"] if not set(said["interventions"]) <= set(said["reasons"]) else []
        phases = log.rows["phase"]
        wrong += ["phases"] if phases.size and not 0 <= phases.min() <= phases.max() < len(said["phases"]) else []
    wrong += [key for key, fits in OPTIONAL.items() if not fits(said.get(key))]
    if wrong:
        raise ValueError(f"the log in {str(folder)!r} is not whole: {', '.join(wrong)} of {DESCRIPTION} cannot be used")
    if not len(log.rows["tick"]):
        raise ValueError(f"the log in {str(folder)!r} has no tick: there is nothing to show")


def _is_array(value: Any, shape: tuple[int, ...]) -> bool:
    try:
        array = np.array(value, np.float64)
    except (TypeError, ValueError):
        return False
    return array.shape == shape and bool(np.isfinite(array).all())
