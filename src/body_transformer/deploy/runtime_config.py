"""Settings of a run: its phases, their lengths, and the requirements for a contract."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from ..schema import check_fields

if TYPE_CHECKING:
    from .contract import Contract
    from .control import Control

MAX_COMMAND = 5.0
"""m/s or rad/s; no legged robot of this size is as fast, and no policy was trained with so large a command."""
MAX_LOOP_HZ = 1000.0
"""At a higher rate a tick is shorter than a policy call, and no supported robot takes commands that often."""


class Phase(IntEnum):
    """The phases of a run, in their order."""

    WAIT = 0
    """Damping until the first good states have come."""
    RAMP = 1
    """From the measured pose to the default pose."""
    HOLD = 2
    """The default pose."""
    POLICY = 3
    DAMPING = 4
    """The run has ended, as planned or by a stop."""
    DONE = 5


@dataclass(frozen=True)
class RuntimeConfig:
    """Settings of a run."""

    seconds: float | None = 10.0
    """Length of the policy's phase; None: until it is stopped."""
    loop_hz: float | None = None
    """Commands per second, a multiple of the policy's rate; None: that rate."""
    command: tuple[float, ...] | None = None
    """The policy's command, each entry within MAX_COMMAND; None: the contract's."""
    filter: bool = True
    """Whether targets go through the contract's low-pass filter."""
    dry_run: bool = False
    """Compute everything, send nothing."""
    start_s: float = 5.0
    """Longest wait for the first good states."""
    ramp_s: float = 2.0
    """Shortest length of the ramp."""
    ramp_speed: float = 1.0
    """Largest speed of a joint in the ramp, rad/s."""
    hold_s: float = 0.5
    """Time in the default pose before the policy starts."""
    damping_s: float = 1.0
    """Length of the damping at the end."""
    warm_up: int = 50
    """Calls of the policy before anything moves."""
    rehearse: bool = True
    """Call the policy just before each tick, without effect, to bring its data back into the caches."""
    log_s: float = 1200.0
    """Longest time in the log; of a longer run it keeps the newest part."""

    def __post_init__(self) -> None:
        _check_command(self.command or ())
        check_fields(self)
        if self.loop_hz is not None and self.loop_hz > MAX_LOOP_HZ:
            raise ValueError(f"loop_hz must be at most {MAX_LOOP_HZ:g}; got {self.loop_hz:g}")

    def policy_command(self, contract: Contract) -> tuple[float, ...]:
        """Return the command that the policy gets; refuse one beyond the commands of its training."""
        usual = control_of(contract).command
        command = usual if self.command is None else self.command
        if len(command) != len(usual):
            raise ValueError(f"the command must have {len(usual)} entries; got {len(command)}: {command}")
        _check_command(command)
        contract.environment.check_command(command)
        return command

    def ticks_per_step(self, control: Control) -> int:
        """Return the number of ticks of the loop per step of the policy."""
        ratio = (self.loop_hz or control.hz) / control.hz
        if ratio < 1 or abs(ratio - round(ratio)) > 1e-9:
            raise ValueError(
                f"the loop's rate must be a multiple of the policy's {control.hz:g} Hz; got {self.loop_hz:g}"
            )
        return round(ratio)

    def log_ticks(self, control: Control, start_margin_rad: float) -> int:
        """Return the log's capacity: a whole run, or the newest part of a long one."""
        low, high = np.array(control.position_limits).T
        ramp = self.ramp_length_s(control, float((high - low).max()) + start_margin_rad)
        length = math.inf if self.seconds is None else self.seconds
        total = self.start_s + ramp + self.hold_s + length + self.damping_s
        ticks_per_step = self.ticks_per_step(control)
        return math.ceil(min(total, self.log_s) * control.hz * ticks_per_step) + 8 * ticks_per_step

    def ramp_length_s(self, control: Control, furthest_rad: float) -> float:
        """Return a length in seconds in which the joint with the longest way keeps to the speed limits.

        The profile's peak speed is 1.5 times its mean speed.
        """
        return max(self.ramp_s, 1.5 * furthest_rad / min(self.ramp_speed, *control.velocity_limits))


def _check_command(entries: tuple[float, ...]) -> None:
    for value in entries:
        if not abs(value) <= MAX_COMMAND:  # false for NaN, too
            raise ValueError(f"a command's entries must be from -{MAX_COMMAND:g} to {MAX_COMMAND:g}; got {value:g}")


def control_of(contract: Contract) -> Control:
    """Return the contract's control; refuse a contract without one, or without a limit."""
    control = contract.control
    if control is None:
        why = "its export names no experiment: export it with --experiment NAME"
        if contract.experiment is not None:
            why = f"experiment {contract.experiment!r} has no `deploy` section"
            if contract.experiment.startswith("mjlab:"):
                why = f"no contract can describe {contract.experiment!r}; `bot export` says why"
        raise ValueError(f"the policy cannot run on a robot: {why}")
    for name in ("position_limits", "velocity_limits", "torque_limits"):
        if not np.isfinite(np.array(getattr(control, name), np.float64)).all():
            raise ValueError(
                f"the policy cannot run on a robot: {name} of its contract must all be finite; got "
                f"{getattr(control, name)}. Set them in its policy.json, or in the experiment's `deploy` section and "
                "export the policy again"
            )
    if control.filter is not None and control.filter.order != 2:
        raise ValueError(f"the runtime's low-pass filter has order 2; the contract's has {control.filter.order}")
    return control
