"""The tasks by name; each brings its simulator only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature

from ..body.layout import Layout
from ..errors import unknown
from .task import Task


def tracking(layout: Layout, num_clips: str = "32", clip_seed: str | None = None) -> Task:
    """The built-in one."""
    from .tracking.starts import CLIP_SEED
    from .tracking.task import TrackingTask

    return TrackingTask(layout, int(num_clips), CLIP_SEED if clip_seed is None else int(clip_seed))


def adroit(layout: Layout, name: str) -> Task:
    """Door, hammer or relocate, in gymnasium-robotics."""
    from .adroit import AdroitTask

    return AdroitTask(name)


def mocap(
    layout: Layout,
    clips: str = "",
    train_clips: str | None = None,
    validation_clips: str | None = None,
    allow_missing: str = "false",
) -> Task:
    """Motion clips in dm_control: `clips` is a file that `imitation.mocap.clips` writes, the lists are MoCapAct's."""
    from .mocap.task import MocapTask

    if not clips:
        raise ValueError("task 'mocap' needs motion clips: set task_options clips, train_clips, validation_clips")
    return MocapTask(layout, clips, train_clips, validation_clips, allow_missing == "true")


TASKS: Mapping[str, Callable[..., Task]] = {"tracking": tracking, "adroit": adroit, "mocap": mocap}
"""Name -> what makes it, from a layout and the task's options."""


def make_task(name: str, layout: Layout, options: Mapping[str, str]) -> Task:
    allowed = task_options(name)
    for option in options:
        if option not in allowed:
            raise ValueError(f"task {name!r}: " + unknown("option", option, allowed))
    return TASKS[name](layout, **options)


def task_options(name: str) -> list[str]:
    """What a task wants to know beside the layout."""
    if name not in TASKS:
        raise ValueError(unknown("task", name, TASKS))
    return list(signature(TASKS[name]).parameters)[1:]
