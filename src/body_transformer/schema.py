"""Build dataclasses from JSON or YAML data, and the reverse; unknown keys, missing keys and wrong types are errors."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import math
import textwrap
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from itertools import pairwise
from reprlib import Repr
from typing import Annotated, Any, Literal, TypeGuard, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import listing, unknown

T = TypeVar("T")
Low = Annotated[float, -math.inf]
High = Annotated[float, math.inf]
"""Limits. JSON has no infinity, so null in a file means no limit."""

_short = Repr()
_short.maxstring = _short.maxother = 80


def documented(kind: type[T]) -> type[T]:
    """Add the docstrings of a class's fields, which `help` does not show, to the docstring of the class."""
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except OSError:  # the source is not available
        return kind
    lines = ["", "Attributes:"]
    for item, after in pairwise(node.body if isinstance(node, ast.ClassDef) else ()):
        text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        if isinstance(item, ast.AnnAssign) and isinstance(text, str):
            about = f"{ast.unparse(item.target)}: {' '.join(text.split())}"
            lines.append(textwrap.fill(about, 112, initial_indent="    ", subsequent_indent="        "))
    kind.__doc__ = f"{inspect.cleandoc(kind.__doc__ or '')}\n" + "\n".join(lines)
    return kind


def build(kind: type[T], data: Any, where: str = "", complete: bool = False, what: str = "key") -> T:
    """Build a dataclass from the data of a JSON or YAML file.

    Args:
        kind: the dataclass; its type hints define the allowed values.
        data: a mapping of keys to values.
        where: the dotted path for error messages, such as `control.filter`.
        complete: require the keys that have a default, too.
        what: the noun for an unknown key in error messages.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"{where or 'this'} must be a mapping of keys to values; got {shown(data)}")
    items = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    prefix = f"{where}: " if where else ""
    for key in data:
        if key not in items:
            raise ValueError(prefix + unknown(what, key, items))
    missing = [
        name
        for name, item in items.items()
        if name not in data and (complete or (item.default is MISSING and item.default_factory is MISSING))
    ]
    if missing:
        raise ValueError(f"{prefix}missing {'key' if len(missing) == 1 else 'keys'}: {listing(missing)}")
    hints = _hints(kind)  # type: ignore[arg-type]  # a class is hashable
    values = {
        key: _convert(hints[key], value, f"{where}.{key}" if where else key, complete) for key, value in data.items()
    }
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{prefix}{error}") from None


def check_fields(
    config: Any, non_negative: Sequence[str] = (), fractions: Sequence[str] = (), signed: Sequence[str] = ()
) -> None:
    """Check the fields of a dataclass by their type hints.

    Numbers must be above 0. The named fields are exceptions: `non_negative` ones must be 0 or above, `fractions` from 0
    to 1, and `signed` ones may be any number.
    """
    for name, hint in _hints(type(config)).items():  # type: ignore[arg-type]
        value = getattr(config, name)
        _convert(hint, value, name, complete=False)
        if isinstance(value, bool) or not isinstance(value, int | float) or name in signed:
            continue
        if name in fractions:
            is_in_range, wanted = 0 <= value <= 1, "from 0 to 1"
        elif name in non_negative:
            is_in_range, wanted = value >= 0, "0 or above"
        else:
            is_in_range, wanted = value > 0, "above 0"
        if not is_in_range:
            raise ValueError(f"{name} must be {wanted}; got {value!r}")


def plain(value: Any) -> Any:
    """Convert a value to JSON's types: dataclasses become mappings, tuples become lists, and infinities null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and math.isinf(value) else value


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value from a file is a finite number that fits a float."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number with hundreds of digits
        return False


def shown(value: Any) -> str:
    """Return a value's representation for an error, shortened if it is long."""
    return _short.repr(value)


@lru_cache(512)
def _hints(kind: type) -> dict[str, Any]:
    """Return the type hints of a class's fields; to evaluate them takes longer than to check a file."""
    return get_type_hints(kind, include_extras=True)


def _convert(hint: Any, value: Any, where: str, complete: bool) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        is_limit = isinstance(args[1], float)  # other packages annotate types, too
        return args[1] if value is None and is_limit else _convert(args[0], value, where, complete)
    if origin in (Union, types.UnionType):
        return _one_of(args, value, where, complete)
    if origin is Literal:
        if value not in args:
            raise ValueError(f"{where}: {unknown('value', value, args)}")
        return value
    if origin is tuple:
        return _tuple(args, value, where, complete)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise ValueError(f"{where} must be a mapping of keys to values; got {shown(value)}")
        return {key: _convert(args[1], entry, f"{where}.{key}", complete) for key, entry in value.items()}
    if is_dataclass(hint):
        return build(hint, value, where, complete)  # type: ignore[arg-type]
    return value if hint is Any else _scalar(hint, value, where)


def _one_of(hints: tuple[Any, ...], value: Any, where: str, complete: bool) -> Any:
    if value is None and type(None) in hints:
        return None
    some = [hint for hint in hints if hint is not type(None)]
    if len(some) == 1:
        return _convert(some[0], value, where, complete)
    for hint in some:
        try:
            return _convert(hint, value, where, complete)
        except ValueError:
            continue
    raise ValueError(f"{where} must be {' or '.join(map(_description, some))}; got {shown(value)}")


def _description(hint: Any) -> str:
    """Describe the values that a type hint allows."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"one of {listing(args)}"
    if origin is tuple:
        return "a list"
    is_mapping = is_dataclass(hint) or (origin is not None and issubclass(origin, Mapping))
    return "a mapping" if is_mapping else _KINDS.get(hint, str(hint))


def _tuple(hints: tuple[Any, ...], value: Any, where: str, complete: bool) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where} must be a list; got {shown(value)}")
    if hints[-1] is Ellipsis:
        hints = (hints[0],) * len(value)
    if len(value) != len(hints):
        raise ValueError(f"{where} must have {len(hints)} entries; got {shown(value)}")
    both = zip(hints, value, strict=True)
    return tuple(_convert(hint, entry, f"{where}[{k}]", complete) for k, (hint, entry) in enumerate(both))


_KINDS = {str: "a string", int: "a whole number", float: "a finite number", bool: "true or false"}


def _scalar(hint: type, value: Any, where: str) -> Any:
    is_right = type(value) is hint or (hint is float and type(value) is int)
    if not is_right or (hint is float and not is_number(value)):
        raise ValueError(f"{where} must be {_KINDS[hint]}; got {shown(value)}")
    return float(value) if hint is float else value


# -- JSON --------------------------------------------------------------------------------------------------------------


def json_text(value: Any, indent: int = 0) -> str:
    """Format as indented JSON, with a list of plain values on one line."""
    if not isinstance(value, dict | list) or not value or (isinstance(value, list) and _is_flat(value)):
        return json.dumps(value, allow_nan=False)
    step = " " * (indent + 1)
    if isinstance(value, dict):
        rows = [f"{step}{json.dumps(key)}: {json_text(entry, indent + 1)}" for key, entry in value.items()]
        return "{\n" + ",\n".join(rows) + "\n" + " " * indent + "}"
    return "[\n" + ",\n".join(step + json_text(entry, indent + 1) for entry in value) + "\n" + " " * indent + "]"


def json_digest(value: Any) -> str:
    """Return the SHA-256 of plain data; the order of keys does not change it."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _is_flat(values: list[Any]) -> bool:
    return not any(isinstance(value, dict | list) for value in values)
