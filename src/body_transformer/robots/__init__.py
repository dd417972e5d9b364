"""The robots of the paper, as MJCF files of our own.

`humanoid` and `a1` are complete models. `cmu_humanoid` and the `adroit_*` ones are skeletons: names, tree and order
only, so that the body graph is known without the package that has their physics.
"""

from pathlib import Path

from ..errors import unknown

_FOLDER = Path(__file__).parent
_PARTS = {"adroit_hand_bodies", "adroit_hand_actuators"}
"""Included by the `adroit_*` files; no robots by themselves."""


def names() -> list[str]:
    """The shipped robots, sorted."""
    return sorted(file.stem for file in _FOLDER.glob("*.xml") if file.stem not in _PARTS)


def path(name: str) -> Path:
    """The MJCF file of a shipped robot."""
    if name not in names():
        raise ValueError(unknown("robot", name, names()))
    return _FOLDER / f"{name}.xml"
