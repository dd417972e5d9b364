"""Trained policies that come with the package: NAME/policy.safetensors, policy.json and card.md, which says how it was
trained and how good it is. NAME is the task, for a Body Transformer, or TASK.VARIANT for another architecture."""

from pathlib import Path

from ..errors import unknown

PREFIX = "pretrained:"
"""Of their names on the command line."""
FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Those there are, sorted."""
    return sorted(file.parent.name for file in FOLDER.glob("*/policy.json"))


def path(name: str) -> Path:
    """The folder of a trained policy."""
    if name not in names():
        raise ValueError(unknown("pretrained policy", name, names()))
    return FOLDER / name


def task(name: str) -> str:
    """What it was trained for."""
    return name.partition(".")[0]
