"""The robots that a policy can run on. A driver is one module here; it is imported only when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from ...errors import unknown
from ..robot import Robot

_DRIVERS = {"sim": ("sim", "SimRobot"), "a1": ("a1", "A1Robot")}
"""Name -> module here, and its class."""


def names() -> list[str]:
    """Return the names of the robots, sorted."""
    return sorted(_DRIVERS)


def driver(name: str) -> type[Robot]:
    """Return the class of a robot."""
    if name not in _DRIVERS:
        raise ValueError(unknown("robot", name, names()))
    module, kind = _DRIVERS[name]
    return cast(type[Robot], getattr(import_module(f".{module}", __name__), kind))


def open_robot(name: str, **options: Any) -> Robot:
    """Make a robot by its name, to be entered with `with`; unknown options are refused."""
    return driver(name).create(**options)
