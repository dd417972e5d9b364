"""Read JSON and YAML; the limits on size, depth and aliases keep a small file from exhausting the machine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from .errors import listing, repeated
from .schema import shown
from .size_limits import MAX_DEPTH, MAX_JSON_BYTES, MAX_YAML_BYTES, read_at_most

MAX_VALUES = 200_000
"""Largest number of values in YAML; an alias counts as many as it stands for."""
MAX_DIGITS = 4300
"""Longest number in YAML, in characters: Python's own limit for decimal numbers."""
_NUMBER = re.compile(rf"[-+.\d][-+.:\w]{{{MAX_DIGITS},}}")


def read_json(file: Path, strict: bool = True, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Read a JSON file; `strict` refuses NaN, infinities and repeated keys."""
    text, name = read_at_most(file, max_bytes, "a JSON file"), repr(str(file))
    try:
        content = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_unique_keys if strict else None,
            parse_constant=_refuse if strict else None,
        )
    except RecursionError:
        raise ValueError(_too_deep(name)) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{name} is not valid JSON: {error}") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if _depth(content) > MAX_DEPTH:
        raise ValueError(_too_deep(name))
    return content


def read_yaml(file: Path) -> dict[str, Any]:
    """Read a YAML file that holds a mapping."""
    return yaml_mapping(read_at_most(file, MAX_YAML_BYTES, "a YAML file"), repr(str(file)))


def yaml_mapping(text: bytes, name: str) -> dict[str, Any]:
    """Parse YAML that holds a mapping; `name` stands for the text in errors."""
    import yaml  # not installed on a robot's computer

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # PyYAML may lack the one in C, which is faster
    try:
        _check_events(yaml.parse(text, loader), name)
        content = loader(text).get_single_data()
    except yaml.YAMLError as error:
        raise ValueError(f"{name} is not YAML: {' '.join(str(error).split())}") from None
    except ValueError as error:
        raise ValueError(str(error) if str(error).startswith(name) else _unfit(name, error)) from None
    except (KeyError, IndexError, AttributeError, OverflowError) as error:  # PyYAML's, for a value unlike its tag
        raise ValueError(_unfit(name, error)) from None
    if not isinstance(content, dict):
        raise ValueError(f"{name} must be a mapping of keys to values; got {shown(content)}")
    return content


def _check_events(events: Any, name: str) -> None:
    """Refuse YAML that is too deep, too large with its aliases written out, or inside itself."""
    import yaml

    sizes: dict[str, int] = {}  # anchor -> number of its values, once it is complete
    open_nodes: list[tuple[str | None, int]] = []  # anchor of each enclosing node, and the number of values before it
    total = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_nodes):
                raise ValueError(f"{name}: the alias *{event.anchor} is inside of what it stands for")
            total += sizes.get(event.anchor or "", 0)  # an unknown alias is an error of PyYAML
        elif isinstance(event, yaml.ScalarEvent):
            if not event.style and _NUMBER.fullmatch(event.value):
                raise ValueError(f"{name} has a number with {len(event.value):,} digits; the limit is {MAX_DIGITS:,}")
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, total))
            total += 1
            if len(open_nodes) > MAX_DEPTH:
                raise ValueError(_too_deep(name))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor:
                sizes[anchor] = total - before
        if total > MAX_VALUES:
            raise ValueError(f"{name} has over {MAX_VALUES:,} values, with aliases written out; that is the limit")


def _unfit(name: str, error: Exception) -> str:
    return f"{name} has a value that does not fit its tag: {error!r}"


def _too_deep(name: str) -> str:
    return f"{name} has over {MAX_DEPTH} mappings and lists inside each other; that is the limit"


def _depth(content: Any) -> int:
    """Return the number of levels of mappings and lists, without recursion."""
    depth, level = 0, [content]
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        level = [part for one in level for part in (one.values() if isinstance(one, dict) else one)]
    return depth


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if twice := repeated(key for key, _ in pairs):
        raise ValueError(f"keys given more than once: {listing(twice)}")
    return dict(pairs)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a JSON number")
