"""Trained policies that come with the package.

NAME/ holds policy.json, policy.safetensors and card.md, which describes training and evaluation. NAME is the task, for
a Body Transformer, or TASK.VARIANT for another architecture.
"""

from pathlib import Path

from ..errors import unknown

PREFIX = "pretrained:"
"""Prefix of their names on the command line."""
FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Return the names of all trained policies, sorted."""
    return sorted(file.parent.name for file in FOLDER.glob("*/policy.json"))


def path(name: str) -> Path:
    """Return the folder of a trained policy."""
    if name not in names():
        raise ValueError(unknown("pretrained policy", name, names()))
    return FOLDER / name


def task(name: str) -> str:
    """Return the task that a policy was trained for."""
    return name.partition(".")[0]
