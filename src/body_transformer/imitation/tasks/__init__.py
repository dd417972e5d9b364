"""The table of tasks by name; the module of a task is imported only when it is used."""

from __future__ import annotations

from collections.abc import Mapping

from ...body.layout import Layout
from ...errors import listing
from ..options import Catalog
from .base import CollectableTask, ImitationTask

TASKS = Catalog(
    "task",
    {
        "adroit": ".tasks.adroit:AdroitTask",
        "mocap": ".tasks.mocap.task:MocapTask",
        "tracking": ".tasks.tracking.task:TrackingTask",
    },
    num_given=1,
)
"""Tasks, made from the layout of a policy."""


def is_collectable(name: str | None) -> bool:
    """Return whether `bot collect` can record the task of this name."""
    task = TASKS.function(name) if name else None
    return isinstance(task, type) and issubclass(task, CollectableTask)


def make_task(name: str | None, layout: Layout, options: Mapping[str, str]) -> ImitationTask:
    """Make a task of the table."""
    if name is None:
        raise ValueError(f"the experiment has no task: set imitation.task to one of: {listing(TASKS.places)}")
    task: ImitationTask = TASKS.call(name, layout, options=options)
    return task
