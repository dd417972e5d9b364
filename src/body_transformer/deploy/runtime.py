"""The loop: read a state, compute a command and send it, at a fixed rate. Every run and every error ends in damping."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .controller import Controller, Policy
from .log import Log, num_bytes
from .real_time import quiet_gc, sleep_exactly, stop_signals
from .robot import Robot, State
from .runtime_config import Phase, RuntimeConfig
from .safety import Reason, SafetyConfig, Stop
from .saved_log import LogDescription, LoggedLimits, LoggedStop, SavedLog

if TYPE_CHECKING:
    from .contract import Contract

EARLY_S = 0.003
"""Time before a tick at which the rehearsal begins; more for a slow policy, never more than half a period."""
MOST_CALLS = 8
"""Most policy calls in a rehearsal; after four or five they get no faster."""
COLD = 3.0
"""Duration of a call with cold caches, as a multiple of one with warm caches."""


def check(contract: Contract, policy: Policy, robot: Robot, config: RuntimeConfig, safety: SafetyConfig) -> None:
    """Refuse an impossible contract, rate, command or log size; the robot need not be connected yet."""
    controller = Controller(contract, policy, contract.control.joints if contract.control else (), config, safety)
    if not robot.estimates_velocity and any(term.source == "linear_velocity" for term in contract.obs):
        raise ValueError("the policy observes the linear velocity, which this robot does not estimate")
    slowest, fastest = robot.rates_hz
    if not slowest <= controller.hz <= fastest:
        raise ValueError(
            f"this robot takes {slowest:g} to {fastest:g} commands per second (loop_hz); got {controller.hz:g}"
        )
    control = controller.control
    size = num_bytes(config.log_ticks(control, safety.start_margin_rad), len(control.joints), contract.obs_dim)
    if size > memory() / 2:
        raise ValueError(
            f"the log would take {size / 1e9:.1f} GB, more than half of this computer's memory "
            f"({memory() / 1e9:.1f} GB): fewer seconds, or a lower rate"
        )


def memory() -> float:
    """Return this computer's memory in bytes; infinite where it is not known."""
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) if hasattr(os, "sysconf") else math.inf


@dataclass(frozen=True)
class RunResult:
    """Summary of a run."""

    stop: Stop | None
    """Reason for an early end; None if it ended as planned."""
    ticks: int
    seconds: float
    """Length of the whole loop."""
    policy_seconds: float
    missed: int
    interventions: dict[str, int]
    work_ms: dict[str, float]
    """p50, p99 and max of a full control step, a tick that called the policy; empty if there was none."""


class Runtime:
    """A policy on a robot. The caller connects and disconnects the robot: `with robot: Runtime(…, robot).run()`."""

    def __init__(
        self,
        contract: Contract,
        policy: Policy,
        robot: Robot,
        config: RuntimeConfig | None = None,
        safety: SafetyConfig | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = sleep_exactly,
    ) -> None:
        self.contract, self.robot = contract, robot
        self.config, self.safety = config or RuntimeConfig(), safety or SafetyConfig()
        check(contract, policy, robot, self.config, self.safety)
        self._clock, self._sleep, self._policy = clock, sleep, policy
        self._policy_s = 0.0
        self._call_s = math.inf
        """Duration of a policy call with warm caches."""
        self._obs = np.zeros(contract.obs_dim, np.float32)
        self.controller = Controller(contract, self._timed_policy, tuple(robot.joints), self.config, self.safety)
        self.period_s = 1 / self.controller.hz
        capacity = self.config.log_ticks(self.controller.control, self.safety.start_margin_rad)
        self.log = Log(capacity, self.controller.order, contract.obs_dim)
        self._requested: str | None = None
        self._begun_s = self._now_s = 0.0
        self.work_s = 0.0
        """Duration of the newest tick."""
        self._early: State | None = None
        """The state read before the rehearsal, used if no newer one comes after it."""
        self.missed = 0
        self._ended = False

    def stop(self, why: str = "stop was called") -> None:
        """Request the emergency stop from any thread or signal handler: damping within one period, until the end."""
        if self._requested is None:
            self._requested = why

    def run(self) -> RunResult:
        """Run warm-up, ramp, policy and damping; an exception is raised again when the robot is in damping."""
        if self._ended:
            raise ValueError("a runtime runs once: make a new one")
        self._ended = True
        self._warm_up()
        with stop_signals(self.stop), quiet_gc():
            try:
                self._loop()
            except BaseException as error:
                self._failed(error)
                raise
            finally:
                self._leave_damped()
        return self.result()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        """Run the ticks until the end.

        Tick k starts at begun + k periods. This is computed from k each time, so rounding does not add up. Its deadline
        is the start of the next tick. Ticks whose time has passed are skipped, never made up for in a burst.
        """
        clock, period = self._clock, self.period_s
        begun = self._begun_s = clock()
        tick = missed = 0
        phase = Phase.WAIT
        while self.controller.phase != Phase.DONE:
            self._wait_for(begun + tick * period)
            start = clock()
            # plus half a nanosecond: rounding could put a clock at a tick's exact time before it
            skipped = max(math.floor((start - begun + 5e-10) / period) - tick, 0)
            tick += skipped
            missed += skipped
            self.missed += missed
            self._tick(tick, start, start - begun - tick * period, missed)
            self.work_s = clock() - start
            missed = 1 if start + self.work_s - begun > (tick + 1) * period + 5e-10 else 0
            if self.controller.phase != phase:
                phase = self.controller.phase
                self.log.event(tick, start - begun, "phase", phase.name.lower())
                if phase is Phase.POLICY:
                    self.robot.begin_rollout()
                elif phase is Phase.DAMPING and self.controller.interventions.stop is None:
                    self.robot.end_rollout()
            tick += 1

    def _wait_for(self, time_s: float) -> None:
        """Sleep until `time_s`; shortly before, rehearse the policy, unless that could make this tick late."""
        early = min(max(EARLY_S, (COLD + 1) * self._call_s), self.period_s / 2)
        wait = time_s - self._clock() - early
        if self.config.rehearse and wait > 0:
            self._sleep(wait)
            self._early = self.robot.read()  # leaves less to read in the tick itself
            self._rehearse(time_s)
        wait = time_s - self._clock()
        if wait > 0:
            self._sleep(wait)

    def _rehearse(self, until_s: float) -> None:
        """Call the policy without effect while there is time, because its data leave the caches during a sleep."""
        for _ in range(MOST_CALLS):
            if self._clock() + COLD * self._call_s >= until_s:
                return
            self._policy(self._obs)

    def _tick(self, tick: int, start_s: float, late_s: float, missed: int) -> None:
        """Read a state, compute a command and send it; then log the tick."""
        controller, log = self.controller, self.log
        state, self._early = self.robot.read() or self._early, None
        now = self._now_s = self._clock()
        found = controller.interventions
        stop = self._requested if found.stop is None and found.afterwards is None else None
        if stop is not None:
            log.event(tick, now - self._begun_s, "request", stop)
        self._policy_s = math.nan
        command = sent = None
        try:
            command = controller.step(tick, now, state, missed, stop)
            taken = command if self.config.dry_run else self.robot.send(command)
            tripped = self.robot.tripped  # the remote control counts in a dry run as well
            controller.sent(taken, tripped)
            sent = None if self.config.dry_run else taken
        finally:  # the inputs that led to an error are logged, too
            work_s = self._clock() - start_s
            log.add(
                state,
                command,
                sent,
                tick=tick,
                now_s=now,
                late_ms=late_s * 1000,
                work_ms=work_s * 1000,
                policy_ms=self._policy_s * 1000,
                age_ms=controller.age_s * 1000,
                missed=missed,
                phase=controller.phase,
                interventions=found.tick_bits,
                obs=self._obs,
                action=controller.action,
                target=controller.target,
            )
        for kind, stopped in (("stop", found.stop), ("afterwards", found.afterwards)):
            if stopped is not None and found.tick_bits >> stopped.reason & 1:
                log.event(tick, now - self._begun_s, kind, str(stopped))

    def _timed_policy(self, obs: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        start = self._clock()
        action = self._policy(obs)
        self._policy_s = self._clock() - start
        self._obs[:] = obs
        return action

    def _warm_up(self) -> None:
        """Call the policy before anything moves: first calls are slow, and a broken policy must not move the robot."""
        control = self.controller.control
        for _ in range(int(self.config.warm_up)):
            action = np.asarray(self._timed_policy(np.zeros_like(self._obs)))
            self._call_s = min(self._call_s, self._policy_s)
            if action.size != len(control.joints) or not np.isfinite(action).all():
                raise ValueError(f"warm-up: the policy must give {len(control.joints)} finite actions; got {action}")
        if self._call_s > self.period_s:
            raise ValueError(
                f"warm-up: the policy takes {self._call_s * 1e3:.3g} ms at best; a period has {self.period_s * 1e3:.3g}"
            )

    def _failed(self, error: BaseException, what: str = "") -> None:
        text = f"{what}{type(error).__name__}: {error}"
        self.controller.interventions.latch(Reason.ERROR, text)
        self.log.event(self.log.num_ticks, self._clock() - self._begun_s, "error", text)

    def _leave_damped(self) -> None:
        """Send damping as the last command, after errors too."""
        if self.config.dry_run:
            return
        for _ in range(3):  # a link that failed once may work again
            try:
                self.robot.send(self.controller.damping())
                return
            except Exception as error:
                self._failed(error, "damping could not be sent: ")

    # -- status and result ---------------------------------------------------------------------------------------------

    @property
    def elapsed_s(self) -> float:
        """Time from the loop's start to its newest tick."""
        return self._now_s - self._begun_s

    def result(self) -> RunResult:
        """Summarise the run so far."""
        rows = self.log.rows()
        active = rows["phase"] == Phase.POLICY
        work = rows["work_ms"][active & np.isfinite(rows["policy_ms"])]
        numbers = {"p50": 50, "p99": 99, "max": 100}
        return RunResult(
            self.controller.interventions.stop,
            self.log.num_ticks,
            self.elapsed_s,
            int(active.sum()) * self.period_s,
            self.missed,
            self.controller.interventions.counts(),
            {name: float(np.percentile(work, share)) for name, share in numbers.items()} if work.size else {},
        )

    def save_log(self, folder: str | Path, robot: str | None = None, report: Mapping[str, Any] | None = None) -> Path:
        """Write the log after `run` returned or raised, with the robot's name and report."""
        result, control, rows = self.result(), self.controller.control, self.log.rows()
        limits = LoggedLimits(control.position_limits, control.velocity_limits, control.torque_limits)
        description = LogDescription(
            experiment=self.contract.experiment,
            model_sha256=self.contract.model_sha256,
            edited=self.contract.edits(),
            joints=self.controller.order.contract_joints,
            robot_joints=self.controller.order.robot_joints,
            num_ticks=self.log.num_ticks,
            kept_ticks=len(rows["tick"]),
            loop_hz=self.controller.hz,
            policy_hz=control.hz,
            seconds=result.seconds,
            policy_seconds=result.policy_seconds,
            missed=result.missed,
            work_ms=result.work_ms,
            stop=None if result.stop is None else LoggedStop(result.stop.reason.text, result.stop.detail),
            interventions=result.interventions,
            events=tuple(self.log.events),
            config=self.config,
            safety=self.safety,
            limits=limits,
            filter=control.filter if self.config.filter else None,
            command=self.config.policy_command(self.contract),
            reasons=tuple(reason.text for reason in Reason),
            phases=tuple(phase.name.lower() for phase in Phase),
            robot=robot,
            report=report,
        )
        return SavedLog(rows, description).save(Path(folder))
