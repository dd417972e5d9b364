"""The tasks by name; each is imported when it is asked for."""

from collections.abc import Mapping
from importlib import import_module

from ..body.layout import Layout
from ..body.messages import unknown
from .task import Task

TASKS = {
    "tracking": ("tracking.task", "TrackingTask"),
    "adroit": ("adroit", "AdroitTask"),
    "mocap": ("mocap.task", "MocapTask"),
}
"""Name -> module and class, which is made from a layout and the task's options."""


def make_task(name: str, layout: Layout, options: Mapping[str, str]) -> Task:
    if name not in TASKS:
        raise ValueError(unknown("task", name, TASKS))
    module, kind = TASKS[name]
    try:
        task: Task = getattr(import_module(f".{module}", __package__), kind)(layout, **options)
    except TypeError as error:
        raise ValueError(f"task {name!r} with options {dict(options)!r}: {error}") from None
    return task
