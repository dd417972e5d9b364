"""What of a contract the training fixed, which nobody may change, and what may be set for a robot.

`trained_sha256` in policy.json covers the former, and a copy of the latter as `bot export` wrote it, so that a change
of it can be told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..schema import shown
from .document import digest

FIXED = ("kind", "hz", "joints", "scale", "offset", "clip", "torque_clip", "default_pose")
"""Of the control; all of the observation is fixed, too."""
TUNABLE = ("kp", "kd", "position_limits", "velocity_limits", "torque_limits", "filter", "command")
"""Of the control; limits can only be tightened."""

Plain = Mapping[str, Any]
"""A control as JSON has it."""


def tunable(control: Plain | None) -> dict[str, Any] | None:
    """The copy that an export keeps."""
    return None if control is None else {name: control[name] for name in TUNABLE}


def trained_digest(obs: Sequence[Any], control: Plain | None, exported: Plain | None) -> str:
    """SHA-256, see document.digest: `obs`, the control's FIXED, `exported`."""
    fixed = None if control is None else {name: control[name] for name in FIXED}
    return digest({"control": fixed, "exported": exported, "obs": obs})


def edits(control: Plain | None, exported: Plain | None) -> tuple[str, ...]:
    """`kp 50.0 (exported: 100.0)`, one a key that was set since the export."""
    if control is None or exported is None:
        return ()
    return tuple(
        f"{name} {_brief(control[name])} (exported: {_brief(exported[name])})"
        for name in TUNABLE
        if control[name] != exported[name]
    )


def check_tightened(control: Plain | None, exported: Plain | None) -> None:
    """An error if a limit is wider than at the export."""
    if control is None or exported is None:
        return
    for name in ("position_limits", "velocity_limits", "torque_limits"):
        for joint, now, then in zip(control["joints"], control[name], exported[name], strict=True):
            if any(wide > allowed for wide, allowed in zip(_ends(now), _ends(then), strict=True)):
                raise ValueError(
                    f"control.{name} of {joint!r} is {now}; exported was {then}, and a limit can only be tightened"
                )


def _ends(limit: Any) -> list[float]:
    """How far it lets a joint go, each way; null is no limit."""
    if isinstance(limit, list):
        low, high = limit
        return [math.inf if low is None else -low, *_ends(high)]
    return [math.inf if limit is None else limit]


def _brief(value: Any) -> str:
    """One entry where all are the same."""
    if isinstance(value, list) and value and all(entry == value[0] for entry in value):
        return str(value[0])
    return shown(value)
