"""Mutations of plain data (JSON and YAML) and of its text, drawn from a random generator."""

from __future__ import annotations

import copy
import datetime
import json
import math
from collections.abc import Callable
from random import Random
from typing import Any

import yaml

from .content import CANARY, NAMES, mutate_bytes

NUMBERS = (0, 1, -1, 2, 3, 7, 0.5, 10**7, -(10**7), 2**31, 2**32, 2**53 + 1, 2**63, 2**64, 10**30, 10**400,
           math.nan, math.inf, -math.inf, 1e308, -1e308, 1e-308, 5e-324, -0.0)  # fmt: skip
STRUCTURES = ([], {}, [[]], [{}], {"": None}, {"a": {"a": {}}}, [None], [0, "a"], {"mean": 1}, [math.nan], [[1], [2]])
VALUES = (None, True, False, *NUMBERS, *NAMES, *STRUCTURES)
ONLY_YAML = (
    datetime.date(2001, 1, 1),
    datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC),
    b"bytes",
    {1: 2},
    {None: None},
    {(1, 2): 3},
    {1.5: "x", True: "y"},
    {"a", "b"},
)
"""Values that YAML has and JSON has not."""
JSON_TEXTS = (
    "9" * 5000, "-" + "1" * 400 + "e" + "9" * 9, "1e999", "-0", "[" * 5000, "[" * 200 + "]" * 200, '{"a":' * 5000,
    '"\\ud800"', '"\\u0000"', '"\\u001b[31m"', "NaN", "Infinity", "01", "'a'", "nul", '"', "\ufeff", "/* */", "", "\0",
    '{"a": 1, "a": 2}',
)  # fmt: skip
YAML_TEXTS = (
    "!!python/object/apply:os.system ['true']", "!!python/name:os.system", "!!binary aGk=", "!!timestamp 2001-01-01",
    "!!timestamp x", "!!int x", "!!float x", "!!bool x", "!!set {a, b}", "!!omap [a: 1]", "!!pairs [a: 1]", "&a [*a]",
    "*missing", "&x {<<: *x}", "<<: 1", "? [a]\n: 1", "? {a: b}\n: 1", "=", "~", ".nan", ".inf", "1:30:45",
    "0o7", "0x_",
    "1e5", "2001-99-99", "9" * 5000, "[" * 500, "[" * 5000, "{a: " * 300, "|\n x", "- - - -", "@", "`",
    "%TAG ! x", "---",
    "...", "\t", "\x07", "\x85", "\ufeff", "yes", "!!str", "!<x> y", "!", "&", "? ", ": ",
)  # fmt: skip


def mutate_json(chance: Random, content: bytes) -> bytes:
    """Return JSON with changed data, or with changed text."""
    return _mutate(chance, content, _from_json, _to_json, VALUES, JSON_TEXTS)


def mutate_json_lines(chance: Random, content: bytes) -> bytes:
    """Return lines of JSON with one of them changed, doubled, removed or cut."""
    lines = content.splitlines() or [b""]
    for _ in range(chance.choice((1, 1, 3))):
        at = chance.randrange(len(lines))
        kind = chance.randrange(8)
        if kind == 0:
            lines.insert(at, lines[chance.randrange(len(lines))])
        elif kind == 1:
            lines[at] = lines[at][: chance.randrange(len(lines[at]) + 1)]
        elif kind == 2:
            chance.shuffle(lines)
        else:
            lines[at] = mutate_json(chance, lines[at])
    return b"\n".join(lines)


def mutate_yaml(chance: Random, content: bytes) -> bytes:
    """Return YAML with changed data, or with changed text."""
    if chance.random() < 0.02:
        return bomb(chance.choice((5, 9, 20)))
    return _mutate(chance, content, _from_yaml, _to_yaml, (*VALUES, *ONLY_YAML), YAML_TEXTS)


def bomb(depth: int) -> bytes:
    """Return YAML whose aliases stand for ten to the power of `depth` values."""
    lines = ["l0: &l0 [a]", *(f"l{k}: &l{k} [{', '.join([f'*l{k - 1}'] * 10)}]" for k in range(1, depth))]
    return "\n".join(lines).encode()


def _from_json(content: bytes) -> Any:
    return json.loads(content)


def _to_json(value: Any) -> bytes:
    return json.dumps(value, default=str).encode()


def _from_yaml(content: bytes) -> Any:
    return yaml.load(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _to_yaml(value: Any) -> bytes:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True)).encode()


def _mutate(
    chance: Random,
    content: bytes,
    read: Callable[[bytes], Any],
    write: Callable[[Any], bytes],
    values: tuple[Any, ...],
    texts: tuple[str, ...],
) -> bytes:
    way = chance.random()
    if way < 0.1:
        return mutate_bytes(chance, content)
    if way < 0.25:
        return splice(chance, content, texts)
    try:
        changed = read(content)
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            changed = mutate_data(chance, changed, values)
        return write(changed)
    except (ValueError, TypeError, RecursionError, yaml.YAMLError, UnicodeError):  # it cannot be written
        return splice(chance, content, texts)


def splice(chance: Random, content: bytes, texts: tuple[str, ...]) -> bytes:
    """Return the text with a part of its own replaced by another one, or by one of `texts`."""
    words = content.replace(b"\n", b" ").split(b" ")
    old = chance.choice(words)
    new = chance.choice((chance.choice(texts).encode(), chance.choice(texts).encode(), chance.choice(words)))
    if not old:
        at = chance.randrange(len(content) + 1)
        return content[:at] + new + content[at:]
    tail = b"," if old.endswith(b",") else b""
    return content.replace(old, new + tail, 1)


# -- data --------------------------------------------------------------------------------------------------------------


def mutate_data(chance: Random, data: Any, values: tuple[Any, ...] = VALUES) -> Any:
    """Return a copy of the data in which one part is changed, removed, doubled, renamed, moved or nested."""
    whole = [copy.deepcopy(data)]
    places = list(_places(whole))
    if len(places) > 1 and chance.random() < 0.97:
        places = places[1:]  # not the whole
    # parts near the top are as likely as the many deep ones
    depth = chance.choice(sorted({depth for _, _, depth in places}))
    holder, key, _ = chance.choice([place for place in places if place[2] == depth])
    value = holder[key]
    way = chance.randrange(12)
    if way < 5:
        holder[key] = copy.deepcopy(chance.choice(values))
    elif way == 5:
        holder[key] = _near(chance, value)
    elif way == 6:
        del holder[key]
    elif way == 7 and isinstance(holder, dict):
        new = chance.choice((*NAMES, str(key) + "s", str(key).upper(), f" {key}"))
        holder[new] = holder.pop(key) if chance.random() < 0.5 else copy.deepcopy(value)
    elif way == 7:
        holder[key:key] = [copy.deepcopy(value) for _ in range(chance.choice((1, 1, 2, 50)))]
    elif way == 8:
        for _ in range(chance.choice((1, 1, 2, 60, 300))):
            value = [value] if chance.random() < 0.5 else {"a": value}
        holder[key] = value
    else:
        other, place, _ = chance.choice(places)
        holder[key] = copy.deepcopy(other[place])
    return whole[0] if whole else None


def _places(whole: list[Any]) -> Any:
    """Yield the holder, the key and the depth of every value."""
    stack: list[tuple[Any, Any, int]] = [(whole, 0, 0)]
    while stack:
        holder, key, depth = stack.pop()
        yield holder, key, depth
        value = holder[key]
        below = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        stack.extend((value, inner, depth + 1) for inner in list(below)[:500])


def _near(chance: Random, value: Any) -> Any:
    """Return a value of the same kind, or of a similar one."""
    if isinstance(value, bool):
        return chance.choice((not value, int(value), str(value)))
    if isinstance(value, int):
        return chance.choice((value + 1, value - 1, -value, value * 10**6, float(value), str(value), value + 0.5, 0))
    if isinstance(value, float):
        return chance.choice((-value, value * 1e300, value / 1e300, str(value), 0.0, value + 1))
    if isinstance(value, str):
        other = (value.upper(), value + "x", value[:-1], value * 2, value + "\n", "", f"{CANARY}/{value}", value * 2000)
        return chance.choice(other)
    if isinstance(value, list):
        return chance.choice(
            (value[::-1], value[:-1], value * 2, value[:1] * 1000, {str(k): v for k, v in enumerate(value)})
        )
    if isinstance(value, dict):
        return chance.choice((dict(reversed(value.items())), list(value.values()), list(value), list(value.items())))
    return chance.choice((0, "", [], {}))
