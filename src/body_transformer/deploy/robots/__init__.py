"""The robots that a policy can run on. Each module's `create` makes one; it is imported only when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from ...errors import unknown
from ..robot import Robot

_MODULES = {"sim": "sim", "a1": "a1"}
"""Name -> module here."""


def names() -> list[str]:
    """The robots there are, sorted."""
    return sorted(_MODULES)


def open_robot(name: str, **options: Any) -> Robot:
    """A robot by its name, to be entered with `with`; options that it does not know are errors."""
    if name not in _MODULES:
        raise ValueError(unknown("robot", name, names()))
    return cast(Robot, import_module(f".{_MODULES[name]}", __name__).create(**options))
