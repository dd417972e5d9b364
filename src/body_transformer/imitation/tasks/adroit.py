"""The tasks of the Adroit hand, in gymnasium-robotics: the paper's evaluation."""

from __future__ import annotations

from ...body.layout import Layout
from ...errors import unknown
from .gym import GymTask

ENVIRONMENTS = {"door": "AdroitHandDoor-v1", "hammer": "AdroitHandHammer-v1", "relocate": "AdroitHandRelocate-v1"}
"""Name -> environment."""
NUM_STEPS = 200
"""Steps of an episode, as in gymnasium-robotics and the paper."""


class AdroitTask(GymTask):
    """`door`, `hammer` or `relocate`: 200 steps; success is the environment's own, at the last step.

    Returns are those of the installed gymnasium-robotics: version 1.2.1 changed the rewards but not the successes.
    """

    def __init__(self, layout: Layout, name: str, num_processes: int | None = None) -> None:
        """Make the task `name` for policies of this layout."""
        if name not in ENVIRONMENTS:
            raise ValueError(unknown("Adroit task", name, ENVIRONMENTS))
        super().__init__(layout, ENVIRONMENTS[name], "success", max_steps=NUM_STEPS, num_processes=num_processes)
