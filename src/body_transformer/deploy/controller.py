"""What to command now: waiting, ramp, policy, damping. No clock, no link: the same inputs give the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .filter import Interpolation, LowPass
from .limits import Limiter, TargetClip
from .observation import JointOrder, Measured, Observation
from .plan import Phase, RuntimeConfig, control_of
from .robot import COMMAND, Command, State
from .safety import BAD_STATE, DeadlineBudget, Freshness, Interventions, Reason, SafetyConfig, tilt_rad
from .state_check import StateCheck

if TYPE_CHECKING:
    from .contract import Contract

Policy = Callable[[NDArray[np.float32]], NDArray[np.floating[Any]]]
"""[O] -> [A]"""
ROUNDED = 1 + 1e-6
"""ONNX Runtime's tanh is as large as 1.0000002: no intervention."""
DRIVEN_RAD = 1e-6
"""A joint whose target moves by more than this feels it."""


class Controller:
    """One tick after another, from what was measured to what is commanded."""

    def __init__(
        self,
        contract: Contract,
        policy: Policy,
        robot_joints: tuple[str, ...],
        config: RuntimeConfig,
        safety: SafetyConfig,
    ) -> None:
        control = control_of(contract)
        size = len(control.joints)
        self.control, self.config, self.safety = control, config, safety
        self.order = JointOrder(control.joints, robot_joints)
        self.ticks_per_step = config.ticks_per_step(control)
        self.hz = control.hz * self.ticks_per_step
        self.interventions = Interventions()
        self.measured = Measured(size)
        self.phase = Phase.WAIT
        self.action, self.target, self._start, self._answered = np.zeros((4, size))
        self._commanded = np.zeros((len(COMMAND), size))
        self.command = Command(*self._commanded)
        """In the robot's order; its arrays change with the next tick."""
        self._policy = policy
        told = np.array(config.told(control), np.float64)
        self._observation = Observation(contract, self.measured, self.action, told)
        self._check = StateCheck(control, safety, self.order, self.measured)
        self._limiter = Limiter(control, safety, 1 / self.hz, self.interventions)
        self._freshness = Freshness(safety.clock_drift)
        self._deadlines = DeadlineBudget(safety.missed_allowed(self.hz))
        self.low_pass = control.filter if config.filter else None
        """None: targets are not filtered."""
        self._filter = LowPass(self.low_pass.cutoff_hz, control.hz, size) if self.low_pass else None
        self._target_clip = TargetClip(control.torque_clip) if control.torque_clip else None
        self._line = Interpolation(self.ticks_per_step, size)
        self._scale, self._offset = np.array(control.scale, np.float64), np.array(control.offset, np.float64)
        self._default = np.array(control.default_pose, np.float64)
        self._good_states = self._bad_states = 0
        self._origin, self._policy_tick, self._end_tick, self._step = 0, 0, 0, -1
        self._ramp_s = config.ramp_s
        self.age_s = 0.0

    # -- one tick ------------------------------------------------------------------------------------------------------

    def step(self, tick: int, now_s: float, state: State | None, missed: int = 0, stop: str | None = None) -> Command:
        """The command for this tick, in the robot's order.

        Args:
            tick: counts periods since the loop began; those that were missed are left out.
            missed: deadlines since the last tick.
            stop: why somebody wants to stop now.
        """
        self.interventions.tick_bits = 0
        self._watch(now_s, state, missed, stop)
        if self.interventions.stop is None:
            _PHASES[self.phase](self, tick)
        if self.interventions.stop is not None and self.phase < Phase.DAMPING:
            self._end(tick)
        if self.phase >= Phase.DAMPING:
            self._damp(tick)
        return self._fill_command()

    def damping(self) -> Command:
        """The last command of all, whatever happened before."""
        self._limiter.damp(self.measured.joint_vel)
        return self._fill_command()

    def sent(self, command: Command, tripped: str = "") -> None:
        """What the robot really took: the next step starts there. `tripped`: why it takes nothing but damping, if it
        says so; one that does not is found out by the gains that it did not take."""
        if command is self.command and not tripped:  # all of it
            return
        try:
            command.check(len(self.target))
        except ValueError as error:
            raise ValueError(f"the robot's send returned nonsense: {error}") from None
        refused = (self.command.kp > 0) & ~(command.kp > 0)
        if tripped or refused.any():
            self.interventions.latch(Reason.ROBOT_TRIPPED, tripped)
        elif self.phase in (Phase.RAMP, Phase.HOLD, Phase.POLICY):
            self.order.from_robot(command.position, self._limiter.previous)
            self.order.from_robot(command.torque, self._limiter.previous_torque)

    # -- safety --------------------------------------------------------------------------------------------------------

    def _watch(self, now_s: float, state: State | None, missed: int, stop: str | None) -> None:
        tell = self.interventions
        if stop is not None:
            tell.latch(Reason.EMERGENCY_STOP, stop)
        if missed:
            tell.count(Reason.MISSED_DEADLINE, missed)
        if self._deadlines.tick(missed):
            tell.latch(Reason.LATE_LOOP, f"{missed} in the last tick")
        if state is not None:
            self._take(state, now_s)
        if not self.measured.known:
            return
        self.age_s = self._freshness.age_s(now_s)
        if self.age_s > self.safety.stale_ms / 1000:
            tell.latch(Reason.STATE_LOST, f"the newest is {self.age_s * 1000:.0f} ms old")
        elif self.age_s > self.safety.stale_ms / 2000:
            tell.count(Reason.STATE_LATE)
        lean = tilt_rad(self.measured.gravity)
        if lean > self.safety.max_tilt_rad:
            tell.latch(Reason.TILTED, f"{lean:.2f} rad")

    def _take(self, state: State, now_s: float) -> None:
        reason = self._check(state, now_s, self._is_driven)
        if reason is None:
            self._answered[:] = self._limiter.previous
            self._good_states += 1
            self._bad_states = 0
            self._freshness.came(state.stamp_s, state.received_s)
            return
        self.interventions.count(reason)
        if reason in BAD_STATE:
            self._good_states = 0
            self._bad_states += 1
            if self._bad_states >= self.safety.max_bad_states:
                self.interventions.latch(Reason.BAD_STATES, f"{reason.text}, {self._check.detail}".rstrip(", "))

    def _is_driven(self) -> bool:
        """Whether the policy's targets have moved since the last good state; a dry run's move nothing."""
        if self.phase != Phase.POLICY or self.config.dry_run:  # after a ramp somebody looks where the joints are
            return False
        return float(np.abs(self._limiter.previous - self._answered).max()) > DRIVEN_RAD

    # -- phases --------------------------------------------------------------------------------------------------------

    def _wait(self, tick: int) -> None:
        self._limiter.damp(self.measured.joint_vel)
        if self._good_states < self.safety.start_states:
            if tick >= self.config.start_s * self.hz:
                self.interventions.latch(Reason.NO_STATE, f"in {self.config.start_s:g} s")
            return
        pos, limiter = self.measured.joint_pos, self._limiter
        beyond = np.maximum(limiter.low - pos, pos - limiter.high)
        joint = int(beyond.argmax())
        if beyond[joint] > self.safety.start_margin_rad:
            self.interventions.latch(
                Reason.BAD_START,
                f"{self.control.joints[joint]} is at {pos[joint]:.3g} rad, allowed is {limiter.low[joint]:.3g} to "
                f"{limiter.high[joint]:.3g}",
            )
            return
        limiter.start(pos)
        self._start[:] = limiter.previous
        self._line.reset(self._start)
        if self._filter:
            self._filter.reset(self._start)
        self._ramp_s = self.config.length_of_ramp_s(self.control, float(np.abs(self._default - self._start).max()))
        self._origin, self.phase = tick, Phase.RAMP
        self._ramp(tick)

    def _ramp(self, tick: int) -> None:
        if self._due(tick):
            share = min((tick - self._origin + self.ticks_per_step) / (self._ramp_s * self.hz), 1.0)
            np.subtract(self._default, self._start, out=self.target)
            self.target *= share * share * (3 - 2 * share)
            self.target += self._start
            self._aim()
            if share == 1.0:
                self.phase = Phase.HOLD
        self._move(tick)

    def _hold(self, tick: int) -> None:
        if self._due(tick):
            if tick - self._origin >= (self._ramp_s + self.config.hold_s) * self.hz:
                self._enable(tick)
                return
            self.target[:] = self._default
            self._aim()
        self._move(tick)

    def _enable(self, tick: int) -> None:
        """The policy takes over, if the robot stands as it should."""
        error = np.abs(self.measured.joint_pos - self._default)
        joint = int(error.argmax())
        if error[joint] > self.safety.reached_rad and not self.config.dry_run:  # a dry run moves nothing
            self.interventions.latch(
                Reason.POSE_NOT_REACHED, f"{self.control.joints[joint]} is {error[joint]:.2f} rad away"
            )
            return
        self.phase, self._policy_tick, self._step = Phase.POLICY, tick, -1
        self._origin = tick
        self.action[:] = 0
        self._observation.reset()
        if self.control.kind == "torque":
            self._line.reset(np.zeros_like(self.target))
            if self._filter:
                self._filter.reset(np.zeros_like(self.target))
        self._act(tick)

    def _act(self, tick: int) -> None:
        if self._due(tick):
            seconds = self.config.seconds
            if seconds is not None and tick - self._policy_tick >= seconds * self.hz:
                self._end(tick)
                self.interventions.ended = True
                return
            if not self._ask():
                return
            np.multiply(self.action, self._scale, out=self.target)
            self.target += self._offset
            if self._target_clip is not None:
                self._target_clip(self.target, self.measured.joint_pos, self.measured.joint_vel)
            self._aim()
        self._move(tick)

    def _ask(self) -> bool:
        """The policy's action; False if it cannot be used."""
        given = np.asarray(self._policy(self._observation.update()))
        if given.shape not in ((len(self.action),), (1, len(self.action))) or given.dtype.kind != "f":
            self.interventions.latch(Reason.BAD_ACTION, f"{given.dtype} {given.shape}, not ({len(self.action)},)")
            return False
        sizes = np.abs(given.reshape(-1))
        largest = float(sizes[sizes.argmax()])  # NaN if one is
        if not largest <= self.safety.max_action:
            self.interventions.latch(Reason.BAD_ACTION, f"as large as {largest:.3g}")
            return False
        self.action[:] = given.reshape(-1)
        clip = self.control.clip
        if clip is not None and largest > clip:
            if largest > clip * ROUNDED:
                self.interventions.count(Reason.ACTION_CLIPPED)
            np.minimum(self.action, clip, out=self.action)
            np.maximum(self.action, -clip, out=self.action)
        return True

    def _end(self, tick: int) -> None:
        self.phase, self._end_tick = Phase.DAMPING, tick

    def _damp(self, tick: int) -> None:
        self._limiter.damp(self.measured.joint_vel)
        if tick - self._end_tick >= self.config.damping_s * self.hz:
            self.phase = Phase.DONE

    # -- from target to command ----------------------------------------------------------------------------------------

    def _due(self, tick: int) -> bool:
        """Is this the first tick of a step of the policy? Its own first tick may have been missed."""
        step = (tick - self._origin) // self.ticks_per_step
        due, self._step = step != self._step, step
        return due

    def _aim(self) -> None:
        self._line.aim(self.target if self._filter is None else self._filter(self.target))

    def _move(self, tick: int) -> None:
        wanted = self._line.at((tick - self._origin) % self.ticks_per_step)
        pos, vel = self.measured.joint_pos, self.measured.joint_vel
        if self.phase == Phase.POLICY and self.control.kind == "torque":
            self._limiter.push(wanted, pos, vel)
        else:
            self._limiter.hold_position(wanted, pos, vel)

    def _fill_command(self) -> Command:
        self.order.command_to_robot(self._limiter.command, self._commanded)
        return self.command


_PHASES: dict[Phase, Callable[[Controller, int], None]] = {
    Phase.WAIT: Controller._wait,
    Phase.RAMP: Controller._ramp,
    Phase.HOLD: Controller._hold,
    Phase.POLICY: Controller._act,
    Phase.DAMPING: lambda controller, tick: None,
    Phase.DONE: lambda controller, tick: None,
}
