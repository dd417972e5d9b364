"""The table of tasks by name; the module of a task is imported only when it is used."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...body.layout import Layout
from ...errors import listing
from ..options import Catalog
from .base import CollectableTask, ImitationTask

TASKS = Catalog(
    "task",
    {
        "adroit": ".tasks.adroit:AdroitTask",
        "gym": ".tasks.gym:GymTask",
        "mocap": ".tasks.mocap.task:MocapTask",
        "tracking": ".tasks.tracking.task:TrackingTask",
    },
    num_given=1,
    base=ImitationTask,
)
"""Tasks, made from the layout of a policy."""


def import_beside(experiment: str) -> None:
    """Add the current folder and the folder of an experiment's file to the end of Python's import path.

    Processes that start later inherit this path.
    """
    for folder in (Path.cwd(), Path(experiment).absolute().parent):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))


def is_collectable(name: str | None) -> bool:
    """Return whether `bot collect` can record the task of this name."""
    task = TASKS.function(name) if name else None
    return isinstance(task, type) and issubclass(task, CollectableTask)


def make_task(name: str | None, layout: Layout, options: Mapping[str, Any]) -> ImitationTask:
    """Make a task of the table, or of another module."""
    if name is None:
        have = listing(TASKS.places)
        raise ValueError(f"the experiment has no task: set imitation.task to one of: {have}, or MODULE:CLASS")
    task: ImitationTask = TASKS.call(name, layout, options=options)
    return task
