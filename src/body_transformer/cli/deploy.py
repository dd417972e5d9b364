"""`bot deploy DIR --robot sim|a1`: an exported policy on a robot, in real time."""

from __future__ import annotations

import math
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..deploy.contract import Contract
from ..deploy.plan import Phase, RuntimeConfig, control_of
from ..deploy.policy import OnnxPolicy
from ..deploy.replay import replay
from ..deploy.robots import open_robot
from ..deploy.runtime import Result, Runtime
from ..deploy.safety import SafetyConfig
from .output import print_json

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
Pairs = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE …")]

SAFETY: dict[str, dict[str, Any]] = {"sim": {"clock_drift": 0.2}}
"""Robot -> what differs for it: where the computer is too slow for real time, the simulated robot's clock is slow."""
LOOP_HZ = {"a1": 200.0}
"""Robot -> commands a second, if not as many as the policy gives: the A1 wants one every 1 to 10 ms."""


@dataclass
class Deploy:
    """An exported policy on a robot, in real time: ramp to the default pose, policy, damping.

    Space, Enter, q, Ctrl-C and Ctrl-\\ are the emergency stop: damping within one period.
    """

    policy: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")]
    """What `bot export` wrote."""
    robot: Annotated[str, tyro.conf.arg(metavar="sim|a1")] = "sim"
    """Which robot: the simulated one, in a process of its own, or Unitree's A1."""
    seconds: Annotated[float, tyro.conf.arg(metavar="S")] = 10.0
    """How long the policy runs."""
    dry_run: Flag = False
    """Compute everything, send nothing."""
    replay: Annotated[Path | None, tyro.conf.arg(metavar="LOG")] = None
    """No robot: what was measured in the run of that log goes to the policy again, and must give the same commands."""
    faults: Pairs = ()
    """Of the simulated robot and its network, as latency_ms=20 loss_percent=5 payload_kg=2 noise=1 start=lying."""
    robot_options: Pairs = ()
    """Of the A1, as power_level=3."""
    command: Annotated[tuple[float, ...] | None, tyro.conf.arg(metavar="X Y TURN")] = None
    """What the policy is told to do, m/s and rad/s; what the contract says unless given."""
    loop_hz: Annotated[float | None, tyro.conf.arg(metavar="HZ")] = None
    """Commands a second, a multiple of the policy's rate; that rate unless given, and 200 on the A1."""
    torque_fraction: Annotated[float, tyro.conf.arg(metavar="F")] = 1.0
    """Of the contract's torque limits; less for a first run on a stand."""
    stale_ms: Annotated[float, tyro.conf.arg(metavar="MS")] = 100.0
    """No usable state for longer than this: damping."""
    max_tilt_rad: Annotated[float, tyro.conf.arg(metavar="RAD")] = 1.0
    """A lean beyond this: damping."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Where the log goes; deployments/<experiment>-<date> unless given."""
    json: Flag = False
    """Print one JSON object instead of lines."""


def main(args: list[str]) -> None:
    options = tyro.cli(Deploy, prog="bot deploy", args=args)
    policy = OnnxPolicy(options.policy)
    if options.replay is not None:
        again(policy, options.replay, options.json)
        return
    contract = policy.contract
    control = control_of(contract)
    config = RuntimeConfig(
        seconds=options.seconds,
        loop_hz=LOOP_HZ.get(options.robot) if options.loop_hz is None else options.loop_hz,
        command=options.command,
        dry_run=options.dry_run,
    )
    safety = SafetyConfig(
        stale_ms=options.stale_ms,
        max_tilt_rad=options.max_tilt_rad,
        torque_fraction=options.torque_fraction,
        **SAFETY.get(options.robot, {}),
    )
    folder = options.out or Path("deployments") / f"{contract.experiment}-{time.strftime('%Y%m%d-%H%M%S')}"
    robot = open_robot(options.robot, expected=control.joints, **robot_settings(options))
    with robot:
        runtime = Runtime(contract, policy, robot, config, safety, on_phase=lambda phase: mark(runtime, phase))
        try:
            with live_line(runtime), stop_key(runtime):
                result = runtime.run()
        finally:
            if runtime.log.num_ticks:
                runtime.save_log(folder)
    report = getattr(robot, "report", None)
    tell(options, contract, result, folder, None if report is None else report.to_dict())
    if result.stop is not None:
        raise ValueError(f"the run ended early, in damping: {result.stop}; the log is in {str(folder)!r}")


def robot_settings(options: Deploy) -> dict[str, Any]:
    """What the robot is opened with."""
    if options.faults and options.robot != "sim":
        raise ValueError(f"--faults are those of the simulated robot; {options.robot!r} brings its own")
    if options.robot_options and options.robot == "sim":
        raise ValueError("--robot-options are those of the A1; the simulated robot has --faults")
    given = dict(setting(pair) for pair in (*options.faults, *options.robot_options))
    return given | {"listen_only": True} if options.dry_run and options.robot == "a1" else given


def setting(pair: str) -> tuple[str, Any]:
    """`latency_ms=20` -> a name and a number, a truth value or a word."""
    name, equals, value = pair.partition("=")
    if not (name and equals and value):
        raise ValueError(f"an option is NAME=VALUE, not {pair!r}")
    if value in ("true", "false"):
        return name, value == "true"
    for kind in (int, float):
        with suppress(ValueError):
            if math.isfinite(float(value)):  # `nan` is the name of a fault
                return name, kind(value)
    return name, value


def mark(runtime: Runtime, phase: Phase) -> None:
    """The simulated robot reports on the time between; after a stop it goes on, as what was stopped may still fall."""
    name = {Phase.POLICY: "begin_rollout", Phase.DAMPING: "end_rollout"}.get(phase, "")
    stopped = phase is Phase.DAMPING and runtime.controller.interventions.stop is not None
    if name and not stopped and hasattr(runtime.robot, name):
        getattr(runtime.robot, name)()


def again(policy: OnnxPolicy, log: Path, json: bool) -> None:
    """`--replay`"""
    found = replay(log, policy.contract, policy)
    if json:
        print_json({"log": str(log), "ticks": len(found.commands), "different_ticks": list(found.differences)})
    if not found.identical:
        raise ValueError(
            f"{len(found.differences)} of {len(found.commands)} commands are not those of {str(log)!r}; the first is "
            f"that of tick {found.differences[0]}"
        )
    if not json:
        print(f"all {len(found.commands)} commands are those of {log}, bit for bit")


def tell(options: Deploy, contract: Contract, result: Result, folder: Path, report: dict[str, Any] | None) -> None:
    if options.json:
        facts = asdict(result) | {"stop": result.stop and str(result.stop)}
        print_json(
            {"experiment": contract.experiment, "robot": options.robot, **facts, "report": report, "log": str(folder)}
        )
        return
    work, where = result.work_ms, f"{contract.experiment} on {options.robot}"
    timing = f"; a step takes {work['p50']:.2f} ms (p99 {work['p99']:.2f})" if work else ""
    print(f"{where}: {result.policy_seconds:.1f} s, {result.missed} deadlines missed{timing}")
    if report is not None:
        fell = f"fell after {report['fell_after_s']:.1f} s" if report["fell"] else "did not fall"
        print(f"it {fell}, {report['distance_m']:.2f} m at {report['mean_speed_mps']:.2f} m/s")
    steps_in = ", ".join(f"{reason} {count}" for reason, count in result.interventions.items())
    print(f"interventions: {steps_in or 'none'}")
    print(f"wrote {folder}")


# -- while it runs -----------------------------------------------------------------------------------------------------


@contextmanager
def live_line(runtime: Runtime) -> Iterator[None]:
    """Rate, latency, state and interventions on standard error; from a thread, as a slow terminal must not hold the
    loop."""
    if not sys.stderr.isatty():
        yield
        return
    over = threading.Event()

    def show() -> None:
        while not over.wait(0.2):
            now = runtime.status()
            where = f"{now.phase.name.lower():<8}{now.elapsed_s:7.1f} s {now.rate_hz:6.1f} Hz"
            timing = f"step {now.work_ms:5.2f} ms  state {now.age_ms:5.1f} ms old  missed {now.missed}"
            why = f"  {now.stop}" if now.stop else ""
            sys.stderr.write(f"\r\x1b[K{where}  {timing}  interventions {now.interventions}{why}")
            sys.stderr.flush()
        sys.stderr.write("\n")

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(1)


@contextmanager
def stop_key(runtime: Runtime) -> Iterator[None]:
    """Space, Enter or q stop the robot, if somebody sits at a keyboard."""
    if not sys.stdin or not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    over = threading.Event()

    def listen() -> None:
        while not over.is_set():
            if select.select([keyboard], [], [], 0.05)[0] and set(os.read(keyboard, 64)) & set(b" \r\nq"):
                runtime.stop("key")
                return

    tty.setcbreak(keyboard)
    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(1)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
