"""The robots of the paper, as MJCF files.

`humanoid` and `a1` are complete models. `cmu_humanoid` and `adroit_*` are skeletons with names, tree and order only, so
that the body graph is known without the package that has their physics.
"""

from pathlib import Path

from ..errors import unknown

_FOLDER = Path(__file__).parent
_PARTS = {"adroit_hand_bodies", "adroit_hand_actuators"}
"""Parts that the `adroit_*` files include; not robots by themselves."""


def names() -> list[str]:
    """Return the names of the shipped robots, sorted."""
    return sorted(file.stem for file in _FOLDER.glob("*.xml") if file.stem not in _PARTS)


def path(name: str) -> Path:
    """Return the MJCF file of a shipped robot."""
    if name not in names():
        raise ValueError(unknown("robot", name, names()))
    return _FOLDER / f"{name}.xml"
