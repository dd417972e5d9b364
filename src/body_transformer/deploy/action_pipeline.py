"""The steps from an action of the policy to a motor command. No other place lists them.

| step          | when       | effect                                                                   | from         |
|---------------|------------|--------------------------------------------------------------------------|--------------|
| `check`       | per action | end the run if the shape is wrong, a value not finite or too large       | safety       |
| `clip`        | per action | bound the action                                                         | contract     |
| `scale`       | per action | target = offset + scale * action                                         | contract     |
| `clip_torque` | per action | clip the target as in training, with the measured state                  | contract     |
| `filter`      | per target | Butterworth low-pass, also for the targets of the ramp                   | contract     |
| `interpolate` | per tick   | straight line between targets, if the loop is faster than the policy     | runtime      |
| `limit`       | per tick   | position, torque and step limits; lower gains where no target fits       | `Limiter`    |
| `reorder`     | per tick   | from the contract's joint order to the robot's                           | `JointOrder` |

`Robot.send` then clips the command to the hardware's bounds, sends it and returns the command as sent. The next step
limit counts from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .control import butterworth
from .limits import Limiter
from .observation import JointOrder, Measured
from .robot import COMMAND, Command
from .safety import Interventions, Reason, SafetyConfig

if TYPE_CHECKING:
    from .control import Control, TorqueClip

Vector = NDArray[np.float64]
ROUNDED = 1 + 1e-6
"""An action beyond the clip by up to this factor is not counted: ONNX Runtime's tanh reaches 1.0000002."""


class ActionPipeline:
    """The steps and their arrays; every array is in the contract's joint order until `reorder`."""

    def __init__(
        self,
        control: Control,
        safety: SafetyConfig,
        order: JointOrder,
        measured: Measured,
        interventions: Interventions,
        ticks_per_step: int,
        filtered: bool,
    ) -> None:
        size = len(control.joints)
        self.action, self.target = np.zeros((2, size))
        """[J], the last action after `clip`, and the last target before `filter`."""
        self.limiter = Limiter(control, safety, 1 / (control.hz * ticks_per_step), interventions)
        self._commanded = np.zeros((len(COMMAND), size))
        self.command = Command(*self._commanded)
        """In the robot's order; its arrays change with the next tick."""
        self._order, self._interventions = order, interventions
        self._pos, self._vel, self._torque_clip = measured.joint_pos, measured.joint_vel, control.torque_clip
        self._max_action, self._action_clip, self._largest = safety.max_action, control.clip, 0.0
        self._scale, self._offset = np.array(control.scale, np.float64), np.array(control.offset, np.float64)
        low_pass = control.filter if filtered else None
        self._filter = LowPass(low_pass.cutoff_hz, control.hz, size) if low_pass else None
        self._line = Interpolation(ticks_per_step, size)

    def reset(self, value: Vector) -> None:
        """Continue from this target [J] as if it had always been the target."""
        self._line.reset(value)
        if self._filter:
            self._filter.reset(value)

    def take(self, given: NDArray[np.floating[Any]]) -> bool:
        """Run the steps `check` to `filter` on the policy's action; return False if `check` refuses it."""
        if not self._check(given):
            return False
        self._clip()
        np.multiply(self.action, self._scale, out=self.target)
        self.target += self._offset
        if self._torque_clip is not None:
            clip_target(self.target, self._pos, self._vel, self._torque_clip)
        self.aim()
        return True

    def aim(self) -> None:
        """Filter `target`, and interpolate to it in the next ticks."""
        self._line.aim(self.target if self._filter is None else self._filter(self.target))

    def move(self, tick: int, as_torque: bool) -> None:
        """Run the steps `interpolate` and `limit` in tick 0 … ticks_per_step - 1 of a policy step."""
        wanted = self._line.at(tick)
        limit = self.limiter.push if as_torque else self.limiter.hold_position
        limit(wanted, self._pos, self._vel)

    def damp(self) -> None:
        """Replace the target by damping, at the measured speed."""
        self.limiter.damp(self._vel)

    def reorder(self) -> Command:
        """Return the limited command in the robot's joint order."""
        self._commanded[:] = self._order.to_robot(self.limiter.command)
        return self.command

    def _check(self, given: NDArray[np.floating[Any]]) -> bool:
        size = len(self.action)
        if given.shape not in ((size,), (1, size)) or given.dtype.kind != "f":
            self._interventions.latch(Reason.BAD_ACTION, f"{given.dtype} {given.shape}, not ({size},)")
            return False
        sizes = np.abs(given.reshape(-1))
        self._largest = float(sizes[sizes.argmax()])  # NaN if one is
        if not self._largest <= self._max_action:
            self._interventions.latch(Reason.BAD_ACTION, f"as large as {self._largest:.3g}")
            return False
        self.action[:] = given.reshape(-1)
        return True

    def _clip(self) -> None:
        clip = self._action_clip
        if clip is None or self._largest <= clip:
            return
        if self._largest > clip * ROUNDED:
            self._interventions.count(Reason.ACTION_CLIPPED)
        self.action.clip(-clip, clip, out=self.action)


def clip_target(target: Vector, pos: Vector, vel: Vector, clip: TorqueClip) -> None:
    """Move `target` [J] so that kp (target - pos) - kd vel stays within the torque of the training.

    The policy was trained with this clip; it is not a limit of the robot.
    """
    kp = np.array(clip.kp)
    middle, most = vel * (np.array(clip.kd) / kp) + pos, np.array(clip.torque) / kp
    target[:] = np.minimum(np.maximum(target, middle - most), middle + most)


# -- filter and interpolation ------------------------------------------------------------------------------------------


class LowPass:
    """A second-order Butterworth filter of a vector [J], in the transposed direct form II."""

    def __init__(self, cutoff_hz: float, rate_hz: float, size: int) -> None:
        self.b0, self.b1, self.b2, self.a1, self.a2 = butterworth(cutoff_hz, rate_hz)
        self._first, self._second = np.zeros((2, size))

    def reset(self, value: ArrayLike) -> None:
        """Continue as if `value` had always been the input: the next output does not jump."""
        given = np.asarray(value, np.float64)
        self._first, self._second = given * (1 - self.b0), given * (self.b2 - self.a2)

    def __call__(self, value: Vector) -> Vector:
        """Return the filtered value [J]."""
        output: Vector = value * self.b0 + self._first
        self._first = value * self.b1 - output * self.a1 + self._second
        self._second = value * self.b2 - output * self.a2
        return output


class Interpolation:
    """The straight line from one policy step's target to the next, in `steps` ticks; it arrives on the last one."""

    def __init__(self, steps: int, size: int) -> None:
        if steps < 1:
            raise ValueError(f"a policy step needs 1 tick or more; got {steps}")
        self.steps = steps
        self._start, self._end, self._now = np.zeros((3, size))

    def reset(self, value: ArrayLike) -> None:
        """Stay at `value`."""
        self._start[:] = self._end[:] = self._now[:] = np.asarray(value, np.float64)

    def aim(self, target: Vector) -> None:
        """Start a new line from the current point to `target`."""
        self._start[:] = self._now
        self._end[:] = target

    def at(self, tick: int) -> Vector:
        """Return the point in tick 0 … steps - 1 after `aim`; the array changes with the next call."""
        on_the_way = tick + 1 < self.steps  # the last tick arrives exactly, whatever the rounding
        share = (tick + 1) / self.steps
        self._now[:] = (self._end - self._start) * share + self._start if on_the_way else self._end
        return self._now
