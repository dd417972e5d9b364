"""The loop: at a fixed rate, read the robot, decide, send; and whatever happens, leave the robot in damping."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .controller import Controller, Policy
from .log import Log
from .plan import Phase, RuntimeConfig
from .preflight import check
from .rehearsal import Rehearsal
from .robot import Robot, State
from .safety import Reason, SafetyConfig, Stop
from .signals import handled

if TYPE_CHECKING:
    from .contract import Contract

EARLY_S = 0.003
"""Before a tick, for the rehearsal; more where a tick takes long, and never more than half a period."""
SPIN_S = 0.0005
"""A sleeping process wakes up that late, and who sleeps for less loses what it has in the caches."""


def sleep_exactly(seconds: float) -> None:
    """The last part of it awake."""
    until = time.monotonic() + seconds
    if seconds > SPIN_S:
        time.sleep(seconds - SPIN_S)
    while time.monotonic() < until:
        pass


@dataclass(frozen=True)
class Status:
    """Where a run is, for a line that somebody reads."""

    phase: Phase
    elapsed_s: float
    rate_hz: float
    work_ms: float
    """The last tick's."""
    age_ms: float
    """Of the newest state."""
    round_trip_ms: float
    """What the link takes, there and back; NaN where the robot cannot know it."""
    interventions: int
    missed: int
    stop: Stop | None


@dataclass(frozen=True)
class Result:
    """How a run went."""

    stop: Stop | None
    """Why it ended early; None: it did not."""
    ticks: int
    seconds: float
    """Of the whole loop."""
    policy_seconds: float
    missed: int
    interventions: dict[str, int]
    work_ms: dict[str, float]
    """p50, p99 and max of a full control step, a tick that asked the policy; empty if none did."""


class Runtime:
    """A policy on a robot. The caller opens and closes the robot: `with robot: Runtime(…, robot).run()`."""

    def __init__(
        self,
        contract: Contract,
        policy: Policy,
        robot: Robot,
        config: RuntimeConfig | None = None,
        safety: SafetyConfig | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = sleep_exactly,
        on_phase: Callable[[Phase], None] | None = None,
    ) -> None:
        """`on_phase` is told of each new phase, in the loop: it must be quick."""
        self.contract, self.robot = contract, robot
        self.config, self.safety = config or RuntimeConfig(), safety or SafetyConfig()
        check(contract, policy, robot, self.config, self.safety)
        self._clock, self._sleep, self._policy = clock, sleep, policy
        self._on_phase = on_phase
        self._policy_s = 0.0
        self._obs = np.zeros(contract.obs_dim, np.float32)
        how = (tuple(robot.joints), self.config, self.safety)
        self.controller = Controller(contract, self._timed_policy, *how)
        self._rehearsal = Rehearsal(Controller(contract, policy, *how), policy, clock) if self.config.rehearse else None
        self.period_s = 1 / self.controller.hz
        capacity = self.config.log_ticks(self.controller.control, self.safety.start_margin_rad)
        self.log = Log(capacity, self.controller.order, contract.obs_dim)
        self._requested: str | None = None
        self._begun_s = self._now_s = 0.0
        self._work_s = 0.0
        self._early: State | None = None
        """What came before the rehearsal, in case nothing comes after it."""
        self._usual_s = 0.0
        """What a tick takes: the longest of the last ones."""
        self._missed = 0
        self._ended = False

    def stop(self, why: str = "stop was called") -> None:
        """The emergency stop: damping within one period, and it stays. From any thread or signal handler."""
        if self._requested is None:
            self._requested = why

    def run(self) -> Result:
        """Warm-up, ramp, policy, damping; an exception is raised again when the robot is in damping."""
        if self._ended:
            raise ValueError("a runtime runs once")
        self._ended = True
        self._warm_up()
        with handled(self.stop), _quiet_gc():
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
        """Tick k's time is begun + k periods, computed anew from k: nothing adds up. Its deadline is the next one's
        time; ticks that are over before they began are left out, never made up for in a burst."""
        clock, period = self._clock, self.period_s
        begun = self._begun_s = clock()
        tick = missed = 0
        phase = Phase.WAIT
        while self.controller.phase != Phase.DONE:
            self._wait_for(begun + tick * period)
            start = clock()
            # half a nanosecond: a clock that stands exactly on the tick's time must not fall before it by rounding
            skipped = max(math.floor((start - begun + 5e-10) / period) - tick, 0)
            tick += skipped
            missed += skipped
            self._missed += missed
            self._tick(tick, start, start - begun - tick * period, missed)
            self._work_s = clock() - start
            self._usual_s = max(self._work_s, 0.9 * self._usual_s)
            missed = 1 if start + self._work_s - begun > (tick + 1) * period + 5e-10 else 0
            if self.controller.phase != phase:
                phase = self.controller.phase
                self.log.event(tick, start - begun, "phase", phase.name.lower())
                if self._on_phase is not None:
                    self._on_phase(phase)
            tick += 1

    def _wait_for(self, time_s: float) -> None:
        """Until then; shortly before, the last tick again, unless it may take so long that this one would be late."""
        half = self.period_s / 2
        early = max(2 * self._usual_s, min(EARLY_S, half))
        wait = time_s - self._clock() - early
        if self._rehearsal is not None and early <= half and wait > 0:
            self._sleep(wait)
            self._early = self.robot.read()  # then there is less to read when it counts
            self._rehearsal(self._obs, time_s)
        wait = time_s - self._clock()
        if wait > 0:
            self._sleep(wait)

    def _tick(self, tick: int, start_s: float, late_s: float, missed: int) -> None:
        """Read, decide, send; what is written down is written when the command has left."""
        controller, log = self.controller, self.log
        state, self._early = self.robot.read() or self._early, None
        now = self._now_s = self._clock()
        told = controller.interventions
        stop = self._requested if told.stop is None and told.afterwards is None else None
        if stop is not None:
            log.event(tick, now - self._begun_s, "request", stop)
        self._policy_s = math.nan
        command = sent = None
        try:
            command = controller.step(tick, now, state, missed, stop)
            taken = command if self.config.dry_run else self.robot.send(command)
            tripped = str(getattr(self.robot, "tripped", ""))  # in a dry run, too: the remote
            controller.sent(taken, tripped)
            sent = None if self.config.dry_run else taken
        finally:  # what led to an error, above all
            work_s = self._clock() - start_s
            log.begin(tick, now, late_s, missed, state)
            log.commanded(command, sent)
            log.end(
                controller.phase,
                controller.interventions.tick_bits,
                controller.age_s,
                work_s,
                self._policy_s,
                self._obs,
                controller.action,
                controller.target,
            )
        if self._rehearsal is not None:
            self._rehearsal.remember((tick, now, state, missed, stop), (taken, tripped))
        for kind, stopped in (("stop", told.stop), ("afterwards", told.afterwards)):
            if stopped is not None and told.tick_bits >> stopped.reason & 1:
                log.event(tick, now - self._begun_s, kind, str(stopped))

    def _timed_policy(self, obs: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        start = self._clock()
        action = self._policy(obs)
        self._policy_s = self._clock() - start
        self._obs[:] = obs
        return action

    def _warm_up(self) -> None:
        """The first calls are slow, and a policy that is too slow or broken must not get to move anything."""
        control = self.controller.control
        quickest = math.inf
        for _ in range(int(self.config.warm_up)):
            action = np.asarray(self._timed_policy(np.zeros_like(self._obs)))
            quickest = min(quickest, self._policy_s)
            if action.size != len(control.joints) or not np.isfinite(action).all():
                raise ValueError(f"warm-up: the policy gave {action}, not {len(control.joints)} finite actions")
        if quickest > self.period_s:
            raise ValueError(
                f"warm-up: the policy takes {quickest * 1000:.3g} ms at best; a period has {self.period_s * 1000:.3g}"
            )
        if self._rehearsal is not None:
            self._rehearsal.call_s = quickest

    def _failed(self, error: BaseException, what: str = "") -> None:
        text = f"{what}{type(error).__name__}: {error}"
        self.controller.interventions.latch(Reason.ERROR, text)
        self.log.event(self.log.num_ticks, self._clock() - self._begun_s, "error", text)

    def _leave_damped(self) -> None:
        """Whatever happened: the last thing that the robot hears is damping."""
        if self.config.dry_run:
            return
        for _ in range(3):  # a link that failed once may work again
            try:
                self.robot.send(self.controller.damping())
                return
            except Exception as error:
                self._failed(error, "damping could not be sent: ")

    # -- what there is to know -----------------------------------------------------------------------------------------

    def status(self) -> Status:
        """For another thread."""
        elapsed = self._now_s - self._begun_s
        trip_s = getattr(self.robot, "round_trip_s", math.nan)
        return Status(
            self.controller.phase,
            elapsed,
            self.log.num_ticks / elapsed if elapsed > 0 else 0.0,
            self._work_s * 1000,
            self.controller.age_s * 1000,
            # below 0 where a simulated robot that was late catches up: more of its time goes by than of ours
            0.0 if trip_s < 0 else trip_s * 1000,
            self.controller.interventions.total,
            self._missed,
            self.controller.interventions.stop,
        )

    def result(self) -> Result:
        rows = self.log.rows()
        walking = rows["phase"] == Phase.POLICY
        work = rows["work_ms"][walking & np.isfinite(rows["policy_ms"])]
        numbers = {"p50": 50, "p99": 99, "max": 100}
        return Result(
            self.controller.interventions.stop,
            self.log.num_ticks,
            self._now_s - self._begun_s,
            int(walking.sum()) * self.period_s,
            self._missed,
            self.controller.interventions.counts(),
            {name: float(np.percentile(work, share)) for name, share in numbers.items()} if work.size else {},
        )

    def save_log(self, folder: str | Path, more: dict[str, Any] | None = None) -> Path:
        """Writes what happened; after `run`, whether it returned or raised. `more` goes into its description."""
        result, control = self.result(), self.controller.control
        return self.log.save(
            Path(folder),
            {
                "experiment": self.contract.experiment,
                "model_sha256": self.contract.model_sha256,
                "edited": self.contract.edits(),
                "loop_hz": self.controller.hz,
                "policy_hz": self.controller.control.hz,
                "filter": None if self.controller.low_pass is None else asdict(self.controller.low_pass),
                "command": self.config.told(control),
                "config": asdict(self.config),
                "safety": asdict(self.safety),
                "limits": {
                    "position": self.controller.control.position_limits,
                    "velocity": self.controller.control.velocity_limits,
                    "torque": self.controller.control.torque_limits,
                },
                "reasons": [reason.text for reason in Reason],
                "phases": [phase.name.lower() for phase in Phase],
                "stop": None
                if result.stop is None
                else {"reason": result.stop.reason.text, "detail": result.stop.detail},
                "seconds": result.seconds,
                "policy_seconds": result.policy_seconds,
                "missed": result.missed,
                "interventions": result.interventions,
                "work_ms": result.work_ms,
                **(more or {}),
            },
        )


@contextmanager
def _quiet_gc() -> Iterator[None]:
    """What exists now need not be looked through again while the loop runs."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
