"""The options of a1-walk."""

from __future__ import annotations

from dataclasses import dataclass

from ...schema import check_fields
from .model import CONTROL_DT

Ranges = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]
"""Ranges of commands: m/s ahead, m/s to the left, rad/s to the left."""


@dataclass(frozen=True)
class WalkOptions:
    """The paper's setting by default, and options beyond it."""

    command: Ranges = ((0.5, 0.5), (0.0, 0.0), (0.0, 0.0))
    """m/s ahead, m/s to the left, rad/s to the left: each episode draws from these ranges."""
    noise: bool = True
    """Whether the actor's observations have noise."""
    latency: tuple[int, int] = (0, 0)
    """Physics steps (5 ms) from an action to its effect; each robot draws one of this range."""
    stiffness: tuple[float, float] = (1.0, 1.0)
    """Factor of the motors' position gain; each robot draws one of this range. Targets are bounded as with 1."""
    push_every_s: float | None = None
    """Seconds from one push to the next; a push adds to the velocity of the trunk."""
    push_speed: float = 0.5
    """Largest change of the velocity along x and along y, m/s."""
    turning: float = 0.05
    """Weight of the commanded turning rate in the reward. With the paper's weight, robots walk in wide curves."""

    def __post_init__(self) -> None:
        check_fields(self, non_negative=("push_speed", "turning"))
        every = self.push_every_s
        checks = {
            "latency": (0 <= self.latency[0] <= self.latency[1], "0 <= low <= high, in physics steps"),
            "stiffness": (0 < self.stiffness[0] <= self.stiffness[1], "0 < low <= high"),
            "command": (all(low <= high for low, high in self.command), "three ranges, low <= high"),
            "push_every_s": (every is None or every >= CONTROL_DT, f"at least a control step, {CONTROL_DT}"),
        }
        for name, (is_right, wanted) in checks.items():
            if not is_right:
                raise ValueError(f"{name} must be {wanted}; got {getattr(self, name)}")
