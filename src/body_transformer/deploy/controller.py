"""Decisions of a run: waiting, ramp, policy, damping.

A controller uses neither clock nor link, so the same inputs give the same commands, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .action_pipeline import ActionPipeline
from .observation import JointOrder, Measured, Observation
from .robot import Command, State
from .runtime_config import Phase, RuntimeConfig, control_of
from .safety import BAD_STATE, DeadlineBudget, Freshness, Interventions, Reason, SafetyConfig, tilt_rad
from .state_check import StateCheck

if TYPE_CHECKING:
    from .contract import Contract

Policy = Callable[[NDArray[np.float32]], NDArray[np.floating[Any]]]
"""[O] -> [A]"""
DRIVEN_RAD = 1e-6
"""A target that moves by more than this drives its joint."""


class Controller:
    """Turn measurements into commands, tick by tick.

    Each tick checks a state (`StateCheck`), builds the observation (`Observation`), calls the policy once per policy
    step, and turns its action into a command (`ActionPipeline`).
    """

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
        self.age_s = 0.0
        self.pipeline = ActionPipeline(
            control, safety, self.order, self.measured, self.interventions, self.ticks_per_step, config.filter
        )
        self.action, self.target = self.pipeline.action, self.pipeline.target
        self.command = self.pipeline.command
        """In the robot's order; its arrays change with the next tick."""
        self._policy = policy
        command = np.array(config.policy_command(contract), np.float64)
        self._observation = Observation(contract, self.measured, self.action, command)
        self._check = StateCheck(control, safety, self.order, self.measured)
        self._limiter = self.pipeline.limiter
        self._freshness = Freshness(safety.clock_drift)
        self._deadlines = DeadlineBudget(safety.missed_allowed(self.hz))
        self._default = np.array(control.default_pose, np.float64)
        self._start, self._answered = np.zeros((2, size))
        self._good_states = self._bad_states = 0
        self._origin, self._end_tick, self._step = 0, 0, -1
        self._ramp_s = config.ramp_s
        self._phases: dict[Phase, Callable[[int], None]] = {
            Phase.WAIT: self._wait,
            Phase.RAMP: self._ramp,
            Phase.HOLD: self._hold,
            Phase.POLICY: self._act,
        }

    # -- one tick ------------------------------------------------------------------------------------------------------

    def step(self, tick: int, now_s: float, state: State | None, missed: int = 0, stop: str | None = None) -> Command:
        """Return the command for this tick, in the robot's order.

        Args:
            tick: periods since the loop began; missed ones are left out.
            now_s: time on the clock that the state's `received_s` is on.
            state: the newest state, if one has come since the last tick.
            missed: deadlines missed since the last tick.
            stop: reason for an emergency stop.
        """
        self.interventions.tick_bits = 0
        self._watch(now_s, state, missed, stop)
        if self.interventions.stop is None and self.phase < Phase.DAMPING:
            self._phases[self.phase](tick)
        if self.interventions.stop is not None and self.phase < Phase.DAMPING:
            self._end(tick)
        if self.phase >= Phase.DAMPING:
            self._damp(tick)
        return self.pipeline.reorder()

    def damping(self) -> Command:
        """Return the last command of a run."""
        self.pipeline.damp()
        return self.pipeline.reorder()

    def sent(self, command: Command, tripped: str = "") -> None:
        """Record the command that the robot received: the next step limit counts from there.

        `tripped` is the robot's reason for accepting only damping. If it gives none, a gain that it set to 0 shows it.
        """
        if command is self.command and not tripped:  # the command was sent unchanged
            return
        if not isinstance(command, Command):
            raise ValueError(f"the robot's send must return the command that the robot received; got {command!r}")
        try:
            command.check(len(self.target))
        except ValueError as error:
            raise ValueError(f"the robot's send returned an invalid command: {error}") from None
        refused = (self.command.kp > 0) & ~(command.kp > 0)
        if tripped or refused.any():
            self.interventions.latch(Reason.ROBOT_TRIPPED, tripped)
        elif self.phase in (Phase.RAMP, Phase.HOLD, Phase.POLICY):
            self._limiter.previous[:] = self.order.from_robot(command.position)
            self._limiter.previous_torque[:] = self.order.from_robot(command.torque)

    # -- safety --------------------------------------------------------------------------------------------------------

    def _watch(self, now_s: float, state: State | None, missed: int, stop: str | None) -> None:
        interventions = self.interventions
        if stop is not None:
            interventions.latch(Reason.EMERGENCY_STOP, stop)
        if missed:
            interventions.count(Reason.MISSED_DEADLINE, missed)
        if self._deadlines.tick(missed):
            interventions.latch(Reason.LATE_LOOP, f"{missed} in the last tick")
        if state is not None:
            self._take(state, now_s)
        if not self.measured.known:
            return
        self.age_s = self._freshness.age_s(now_s)
        if self.age_s > self.safety.stale_ms / 1000:
            interventions.latch(Reason.STATE_LOST, f"the newest is {self.age_s * 1000:.0f} ms old")
        elif self.age_s > self.safety.stale_ms / 2000:
            interventions.count(Reason.STATE_LATE)
        tilt = tilt_rad(self.measured.gravity)
        if tilt > self.safety.max_tilt_rad:
            interventions.latch(Reason.TILTED, f"{tilt:.2f} rad")

    def _take(self, state: State, now_s: float) -> None:
        reason = self._check(state, now_s, self._is_driven)
        if reason is None:
            self._answered[:] = self._limiter.previous
            self._good_states += 1
            self._bad_states = 0
            self._freshness.update(state.stamp_s, state.received_s)
            return
        self.interventions.count(reason)
        if reason in BAD_STATE:
            self._good_states = 0
            self._bad_states += 1
            if self._bad_states >= self.safety.max_bad_states:
                self.interventions.latch(Reason.BAD_STATES, f"{reason.text}, {self._check.detail}".rstrip(", "))

    def _is_driven(self) -> bool:
        """Return whether the policy's targets have moved since the last good state; a dry run moves nothing."""
        if self.phase != Phase.POLICY or self.config.dry_run:  # after a ramp the pose is checked instead
            return False
        return float(np.abs(self._limiter.previous - self._answered).max()) > DRIVEN_RAD

    # -- phases --------------------------------------------------------------------------------------------------------

    def _wait(self, tick: int) -> None:
        self.pipeline.damp()
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
        self.pipeline.reset(self._start)
        self._ramp_s = self.config.ramp_length_s(self.control, float(np.abs(self._default - self._start).max()))
        self._origin, self.phase = tick, Phase.RAMP
        self._ramp(tick)

    def _ramp(self, tick: int) -> None:
        if self._due(tick):
            share = min((tick - self._origin + self.ticks_per_step) / (self._ramp_s * self.hz), 1.0)
            np.subtract(self._default, self._start, out=self.target)
            self.target *= share * share * (3 - 2 * share)
            self.target += self._start
            self.pipeline.aim()
            if share == 1.0:
                self.phase = Phase.HOLD
        self._move(tick)

    def _hold(self, tick: int) -> None:
        if self._due(tick):
            if tick - self._origin >= (self._ramp_s + self.config.hold_s) * self.hz:
                self._enable(tick)
                return
            self.target[:] = self._default
            self.pipeline.aim()
        self._move(tick)

    def _enable(self, tick: int) -> None:
        """Start the policy if the robot is in the default pose."""
        error = np.abs(self.measured.joint_pos - self._default)
        joint = int(error.argmax())
        if error[joint] > self.safety.reached_rad and not self.config.dry_run:  # a dry run moves nothing
            self.interventions.latch(
                Reason.POSE_NOT_REACHED, f"{self.control.joints[joint]} is {error[joint]:.2f} rad away"
            )
            return
        self.phase, self._origin, self._step = Phase.POLICY, tick, -1
        self.action[:] = 0
        self._observation.reset()
        if self.control.kind == "torque":
            self.pipeline.reset(np.zeros_like(self.target))
        self._act(tick)

    def _act(self, tick: int) -> None:
        if self._due(tick):
            seconds = self.config.seconds
            if seconds is not None and tick - self._origin >= seconds * self.hz:
                self._end(tick)
                self.interventions.ended = True
                return
            if not self.pipeline.take(np.asarray(self._policy(self._observation.update()))):
                return
        self._move(tick)

    def _end(self, tick: int) -> None:
        self.phase, self._end_tick = Phase.DAMPING, tick

    def _damp(self, tick: int) -> None:
        self.pipeline.damp()
        if tick - self._end_tick >= self.config.damping_s * self.hz:
            self.phase = Phase.DONE

    def _due(self, tick: int) -> bool:
        """Return whether this is the first tick of a policy step; the step's own first tick may have been missed."""
        step = (tick - self._origin) // self.ticks_per_step
        due, self._step = step != self._step, step
        return due

    def _move(self, tick: int) -> None:
        as_torque = self.phase == Phase.POLICY and self.control.kind == "torque"
        self.pipeline.move((tick - self._origin) % self.ticks_per_step, as_torque)
