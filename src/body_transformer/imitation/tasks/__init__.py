"""The table of tasks by name; a simulator is imported only when its task is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature

from ...body.layout import Layout
from ...errors import unknown
from .base import ImitationTask


def _tracking(layout: Layout, num_clips: str = "32", clip_seed: str | None = None) -> ImitationTask:
    """Make the built-in task."""
    from .tracking.motions import CLIP_SEED
    from .tracking.task import TrackingTask

    return TrackingTask(layout, int(num_clips), CLIP_SEED if clip_seed is None else int(clip_seed))


def _adroit(layout: Layout, name: str) -> ImitationTask:
    """Make door, hammer or relocate, in gymnasium-robotics."""
    from .adroit import AdroitTask

    return AdroitTask(name)


def _mocap(
    layout: Layout,
    clips: str = "",
    train_clips: str | None = None,
    validation_clips: str | None = None,
    allow_missing: str = "false",
) -> ImitationTask:
    """Make motion tracking in dm_control: `clips` is a file by `tasks.mocap.clips`, the lists are MoCapAct's."""
    from .mocap.task import MocapTask

    if not clips:
        raise ValueError("task 'mocap' needs motion clips: set task_options clips, train_clips, validation_clips")
    return MocapTask(layout, clips, train_clips, validation_clips, allow_missing == "true")


TASKS: Mapping[str, Callable[..., ImitationTask]] = {"tracking": _tracking, "adroit": _adroit, "mocap": _mocap}
"""Name -> function that makes the task from a layout and the task's options."""
COLLECTABLE = ("adroit", "tracking")
"""Names of the tasks that `bot collect` can record."""


def make_task(name: str, layout: Layout, options: Mapping[str, str]) -> ImitationTask:
    """Make a task of the table; unknown options are refused."""
    allowed = task_options(name)
    for option in options:
        if option not in allowed:
            raise ValueError(f"task {name!r}: " + unknown("option", option, allowed))
    return TASKS[name](layout, **options)


def task_options(name: str) -> list[str]:
    """Return the names of a task's options."""
    if name not in TASKS:
        raise ValueError(unknown("task", name, TASKS))
    return list(signature(TASKS[name]).parameters)[1:]
