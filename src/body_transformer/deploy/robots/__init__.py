"""Drivers of robots. A driver is a class in one module, here or elsewhere, and is imported when it is used."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ...errors import unknown
from ..robot import Robot

DRIVERS = {"sim": f"{__name__}.sim:SimRobot", "a1": f"{__name__}.a1:A1Robot"}
"""Name -> MODULE:CLASS of the drivers in this package."""


def driver(name: str) -> type[Robot]:
    """Return the class of a robot, given its name or MODULE:CLASS; a module may lie in the current folder."""
    module, colon, kind = DRIVERS.get(name, name).partition(":")
    if not colon:
        raise ValueError(f"{unknown('robot', name, DRIVERS)}, or MODULE:CLASS")
    if name not in DRIVERS and (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    try:
        found = getattr(import_module(module), kind)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the driver {name!r} cannot be imported: {error}") from None
    if not (isinstance(found, type) and issubclass(found, Robot)):
        raise ValueError(f"{name!r} is not a driver: it must be a subclass of {Robot.__module__}.Robot")
    return found


def open_robot(name: str, expected: Sequence[str] = (), **options: Any) -> Robot:
    """Make a robot by its name, to be used in a `with` statement; unknown options are refused."""
    return driver(name).create(options, expected)
