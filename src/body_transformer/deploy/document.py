"""A contract's text: strict JSON, readable, with every digit of its numbers; and what sets two of them apart."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import listing
from ..schema import shown


def digest(value: Any) -> str:
    """SHA-256 of it as canonical JSON: sorted keys, no spaces, ASCII."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_json(file: Path) -> Any:
    """What the file holds; neither NaN nor infinity nor the same key twice."""
    try:
        return json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=_once, parse_constant=_not_json)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{str(file)!r} is not whole JSON: {error}") from None
    except ValueError as error:
        raise ValueError(f"{str(file)!r}: {error}") from None


def to_text(value: Any, indent: int = 0) -> str:
    """Indented, with a list of plain values on one line."""
    if not isinstance(value, dict | list) or not value or (isinstance(value, list) and _is_flat(value)):
        return json.dumps(value, allow_nan=False)
    step = " " * (indent + 1)
    if isinstance(value, dict):
        rows = [f"{step}{json.dumps(key)}: {to_text(entry, indent + 1)}" for key, entry in value.items()]
        return "{\n" + ",\n".join(rows) + "\n" + " " * indent + "}"
    return "[\n" + ",\n".join(step + to_text(entry, indent + 1) for entry in value) + "\n" + " " * indent + "]"


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """`control.kp[3]: 50.0 here, 100.0 there`, of plain data."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = [*one, *(key for key in other if key not in one)]
        return [
            line
            for key in keys
            for line in differences(one.get(key), other.get(key), f"{where}.{key}" if where else str(key))
        ]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [
            line for k, (a, b) in enumerate(zip(one, other, strict=True)) for line in differences(a, b, f"{where}[{k}]")
        ]
    return [] if one == other else [f"{where}: {shown(one)} here, {shown(other)} there"]


def _is_flat(values: list[Any]) -> bool:
    return not any(isinstance(value, dict | list) for value in values)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
    if twice:
        raise ValueError(f"keys given more than once: {listing(twice)}")
    return dict(pairs)


def _not_json(name: str) -> float:
    raise ValueError(f"{name} is no number that JSON knows")
