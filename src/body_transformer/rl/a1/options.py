"""The options of the A1's tasks: a1-walk has the paper's setting by default, a1-command that of the robot."""

from __future__ import annotations

from dataclasses import dataclass

from ...schema import check_fields
from .model import CONTROL_DT

Range = tuple[float, float]
Ranges = tuple[Range, Range, Range]
"""Ranges of commands: m/s ahead, m/s to the left, rad/s to the left. Ranges of a place: x, y and z, m."""


@dataclass(frozen=True)
class WalkOptions:
    """The paper's setting by default, and options beyond it."""

    command: Ranges = ((0.5, 0.5), (0.0, 0.0), (0.0, 0.0))
    """m/s ahead, m/s to the left, rad/s to the left: each command is drawn from these ranges."""
    resample_every_s: float | None = None
    """Seconds from one command to the next within an episode; None: an episode has one command."""
    straight: float = 0.0
    """Share of commands to walk straight ahead."""
    heading: float = 0.0
    """Share of commands with a heading: the turning speed follows from the error of the heading."""
    standing: float = 0.0
    """Share of commands to stand still."""
    noise: bool = True
    """Whether the actor's observations have noise."""
    latency: tuple[int, int] = (0, 0)
    """Physics steps (5 ms) from an action to its effect; each robot draws one of this range."""
    loss: float = 0.0
    """Share of actions that are lost; the motors keep the target before."""
    stiffness: Range = (1.0, 1.0)
    """Factor of the motors' position gain, 50 Nm/rad; each robot draws one. Targets are bounded as with 1."""
    damping: Range = (1.0, 1.0)
    """Factor of the motors' damping, 1 Nm s/rad; each robot draws one."""
    bound_targets: bool = True
    """Whether a target is bounded so that it does not at once ask a motor for more than 25 Nm."""
    filter: bool = False
    """Whether joint targets pass the low-pass filter of the robot."""
    interpolate: bool = False
    """Whether joint targets move in 1, 2 or 4 equal parts, as those of a robot's loop of 50, 100 or 200 Hz do; each
    robot draws one of these numbers."""
    friction: Range = (0.0, 2.0)
    """Friction of the robot; that of a contact is the mean of this and the ground's, which is 1."""
    added_mass: Range = (1.0, 3.0)
    """Mass added to the trunk, kg."""
    com_offset: Ranges = ((-0.05, 0.15), (-0.1, 0.1), (-0.05, 0.05))
    """Displacement of the trunk's centre of mass along x, y and z, m."""
    push_every_s: float | None = None
    """Seconds from one push to the next; a push adds to the velocity of the trunk."""
    push_speed: float = 0.5
    """Largest change of the velocity along x and along y, m/s."""
    turning: float = 0.05
    """Weight of the commanded turning rate in the reward. With the paper's weight, robots walk in wide curves."""

    def __post_init__(self) -> None:
        check_fields(self, non_negative=("push_speed", "turning", "straight", "heading", "standing", "loss"))
        step = f"at least a control step, {CONTROL_DT}"
        checks = {
            "latency": (0 <= self.latency[0] <= self.latency[1], "0 <= low <= high, in physics steps"),
            "stiffness": (0 < self.stiffness[0] <= self.stiffness[1], "0 < low <= high"),
            "damping": (0 < self.damping[0] <= self.damping[1], "0 < low <= high"),
            "friction": (-1 < self.friction[0] <= self.friction[1], "-1 < low <= high"),
            "added_mass": (-4 <= self.added_mass[0] <= self.added_mass[1], "-4 <= low <= high: the trunk has 4.7 kg"),
            "command": (all(low <= high for low, high in self.command), "three ranges, low <= high"),
            "com_offset": (all(low <= high for low, high in self.com_offset), "three ranges, low <= high"),
            "push_every_s": (self.push_every_s is None or self.push_every_s >= CONTROL_DT, step),
            "resample_every_s": (self.resample_every_s is None or self.resample_every_s >= CONTROL_DT, step),
            "loss": (0 <= self.loss < 1, "at least 0 and below 1"),
        }
        shares = (self.straight, self.heading, self.standing)
        checks["standing"] = (
            min(shares) >= 0 and sum(shares) <= 1,
            "a share: all shares are 0 or more, at most 1 together",
        )
        for name, (is_right, wanted) in checks.items():
            if not is_right:
                raise ValueError(f"{name} must be {wanted}; got {getattr(self, name)}")


@dataclass(frozen=True)
class CommandOptions(WalkOptions):
    """The robot's own motors and link, more widely randomised than they differ, and commands in all directions."""

    command: Ranges = ((-0.5, 1.0), (-0.4, 0.4), (-1.0, 1.0))
    resample_every_s: float | None = 5.0
    straight: float = 0.25
    heading: float = 0.25
    standing: float = 0.1
    latency: tuple[int, int] = (0, 9)
    """40 ms, and 5 ms for the alignment of the robot's loop."""
    loss: float = 0.05
    stiffness: Range = (0.9, 2.2)
    """The robot's gain is 100 Nm/rad, twice the paper's."""
    damping: Range = (0.8, 1.25)
    bound_targets: bool = False
    filter: bool = True
    interpolate: bool = True
    friction: Range = (-0.2, 1.5)
    """Contacts have 0.4 to 1.25."""
    added_mass: Range = (-3.0, 3.0)
    com_offset: Ranges = ((-0.05, 0.05), (-0.05, 0.05), (-0.05, 0.05))
    push_every_s: float | None = 6.0
    push_speed: float = 0.8
    turning: float = 1.0
