"""`bot deploy DIR --robot sim|a1`: an exported policy on a robot, in real time."""

from __future__ import annotations

import math
import os
import select
import sys
import threading
import time
from argparse import SUPPRESS, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..deploy import cores
from ..deploy.contract import Contract
from ..deploy.plan import Phase, RuntimeConfig, control_of
from ..deploy.policy import OnnxPolicy
from ..deploy.replay import replay
from ..deploy.robot import Robot
from ..deploy.robots import open_robot
from ..deploy.robots.a1 import A1Options
from ..deploy.robots.sim_options import SimOptions
from ..deploy.runtime import Result, Runtime, Status
from ..deploy.safety import SafetyConfig
from .output import print_json

SAFETY: dict[str, dict[str, Any]] = {"sim": {"clock_drift": 0.2, "max_missed": 10}, "a1": {"max_missed": 20}}
"""Robot -> what differs for it: where the computer is too slow for real time, the simulated robot's clock is slow; and
20 periods at 200 Hz, or 10 at 100 Hz, are as long as 5 at 50 Hz."""
LOOP_HZ = {"sim": 100.0, "a1": 200.0}
"""Robot -> commands a second, if not as many as the policy gives: the A1 wants one every 1 to 10 ms. Two lost in a row
at 50 Hz are longer than the simulated robot's time-out of 50 ms: at 5 % loss that is once in 10 s, at 100 Hz it is once
in half an hour. It shares its computer with the controller, so it gets no more than that."""

OPTIONS: dict[str, Callable[[dict[str, Any]], object]] = {"sim": SimOptions.from_dict, "a1": A1Options.from_dict}
"""Robot -> what its options are checked by."""

ABOUT = """An exported policy on a robot, in real time: ramp to the default pose, policy, damping.
Space, Enter, q, Ctrl-C, Ctrl-Z and Ctrl-\\ are the emergency stop: damping within one period."""


@dataclass
class Deploy:
    """The options; FLAGS says what they mean."""

    policy: Path
    robot: str = "sim"
    seconds: float = 10.0
    dry_run: bool = False
    replay: Path | None = None
    faults: tuple[str, ...] = ()
    address: str | None = None
    robot_options: tuple[str, ...] = ()
    command: tuple[float, ...] | None = None
    loop_hz: float | None = None
    no_filter: bool = False
    torque_fraction: float = 1.0
    stale_ms: float = 100.0
    max_tilt_rad: float = 1.0
    out: Path | None = None
    json: bool = False


_NUMBER: dict[str, Any] = {"type": float}
_PAIRS: dict[str, Any] = {"nargs": "+", "metavar": "NAME=VALUE"}
FLAGS: dict[str, dict[str, Any]] = {
    "robot": {
        "metavar": "sim|a1",
        "help": "the simulated one, in a process of its own, or Unitree's A1 (default: sim)",
    },
    "seconds": _NUMBER | {"metavar": "S", "help": "how long the policy runs (default: 10)"},
    "dry_run": {
        "action": "store_true",
        "help": "compute everything, send nothing; an A1, which answers nothing else, gets commands without torque",
    },
    "replay": {
        "type": Path,
        "metavar": "LOG",
        "help": "no robot: what was measured in the run of that log goes to the policy again, "
        "and must give the same commands",
    },
    "faults": _PAIRS
    | {"help": "of the simulated robot and its network: latency_ms=20 loss_percent=5 payload_kg=2 noise=1 start=lying"},
    "address": {
        "metavar": "HOST:PORT",
        "help": "of a simulated robot that runs already, on this computer; it has its own faults",
    },
    "robot_options": _PAIRS | {"help": "of the A1: power_level=3"},
    "command": _NUMBER
    | {"nargs": "+", "metavar": "X", "help": "what the policy is told to do, m/s and rad/s (default: the contract's)"},
    "loop_hz": _NUMBER
    | {"metavar": "HZ", "help": "commands a second, a multiple of the policy's rate (default: 100; the A1: 200)"},
    "no_filter": {"action": "store_true", "help": "targets as they are, without the contract's low-pass"},
    "torque_fraction": _NUMBER
    | {"metavar": "F", "help": "of the contract's torque limits; less for a first run on a stand (default: 1)"},
    "stale_ms": _NUMBER | {"metavar": "MS", "help": "no usable state for longer than this: damping (default: 100)"},
    "max_tilt_rad": _NUMBER | {"metavar": "RAD", "help": "a lean beyond this: damping (default: 1)"},
    "out": {
        "type": Path,
        "metavar": "DIR",
        "help": "where the log goes (default: deployments/<experiment>-<date>)",
    },
    "json": {"action": "store_true", "help": "print one JSON object instead of lines"},
}
"""Option -> what argparse knows of it; tyro, which the other verbs have, is not on a robot's computer."""


def parse(args: list[str]) -> Deploy:
    """The options; those that are not given are Deploy's own."""
    parser = ArgumentParser("bot deploy", description=ABOUT, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("policy", type=Path, metavar="DIR", help="what `bot export` wrote")
    for name, about in FLAGS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", default=SUPPRESS, **about)
    given = vars(parser.parse_args(args))
    options: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
    return Deploy(**options)


def main(args: list[str]) -> None:
    options = parse(args)
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
        filter=not options.no_filter,
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
    runtime: Runtime | None = None
    try:
        with entered(robot) as own_core:
            runtime = Runtime(contract, policy, robot, config, safety, on_phase=lambda phase: mark(runtime, phase))
            with live_line(runtime), stop_key(runtime), cores.only(own_core):
                result = runtime.run()
    finally:  # when the robot is left: writing takes seconds, and the simulated one has said how it went
        seen = getattr(robot, "report", None)
        report = None if seen is None else seen.to_dict()
        if runtime is not None and runtime.log.num_ticks:
            runtime.save_log(folder, {"robot": options.robot, "report": report})
    tell(options, contract, result, folder, report)
    if result.stop is not None:
        raise ValueError(f"the run ended early, in damping: {result.stop}; the log is in {str(folder)!r}")


@contextmanager
def entered(robot: Robot) -> Iterator[frozenset[int]]:
    """The robot, and the core that the loop has for itself: a robot that runs here, too, gets the others."""
    mine, others = cores.split()
    with ExitStack() as stack:
        with cores.only(others):
            stack.enter_context(robot)
        yield mine if getattr(robot, "process", None) is not None else frozenset()


def robot_settings(options: Deploy) -> dict[str, Any]:
    """What the robot is opened with."""
    if options.faults and options.robot != "sim":
        raise ValueError(f"--faults are those of the simulated robot; {options.robot!r} brings its own")
    if options.robot_options and options.robot == "sim":
        raise ValueError("--robot-options are those of the A1; the simulated robot has --faults")
    given = dict(setting(pair) for pair in (*options.faults, *options.robot_options))
    if options.robot in OPTIONS:
        OPTIONS[options.robot](given)  # else a pair could name another argument of the robot, such as its address
    if given.get("listen_only") and not options.dry_run:
        raise ValueError("an A1 that is only listened to takes no commands: listen_only=true is what --dry-run does")
    if options.address is not None:
        if options.robot != "sim":
            raise ValueError(f"--address is that of a simulated robot; {options.robot!r} has one of its own")
        given["address"] = host_and_port(options.address)
    return given | {"listen_only": True} if options.dry_run and options.robot == "a1" else given


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"an address is HOST:PORT, not {address!r}")
    return host, int(port)


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


def mark(runtime: Runtime | None, phase: Phase) -> None:
    """The simulated robot reports on the time between; after a stop it goes on, as what was stopped may still fall."""
    name = {Phase.POLICY: "begin_rollout", Phase.DAMPING: "end_rollout"}.get(phase, "")
    if runtime is None:
        return
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
        way = f"{report['distance_m']:.2f} m ahead and {abs(report['sideways_m']):.2f} m aside"
        print(f"it {fell}, {way} at {report['mean_speed_mps']:.2f} m/s")
    steps_in = ", ".join(f"{reason} {count}" for reason, count in result.interventions.items())
    print(f"interventions: {steps_in or 'none'}")
    print(f"wrote {folder}")


# -- while it runs -----------------------------------------------------------------------------------------------------


@contextmanager
def live_line(runtime: Runtime) -> Iterator[None]:
    """`status_line` on standard error; from a thread, as a slow terminal must not hold the loop."""
    if not sys.stderr.isatty():
        yield
        return

    def show(over: threading.Event) -> None:
        while not over.wait(0.2):
            sys.stderr.write(f"\r\x1b[K{status_line(runtime.status())}")
            sys.stderr.flush()
        sys.stderr.write("\n")

    with beside(show):
        yield


def status_line(now: Status) -> str:
    """Phase and time, rate, latencies, missed deadlines, interventions; a dash where the robot does not tell."""
    where = f"{now.phase.name.lower():<8}{now.elapsed_s:7.1f} s {now.rate_hz:6.1f} Hz"
    trip = f"{now.round_trip_ms:5.1f} ms" if math.isfinite(now.round_trip_ms) else f"{'–':>5}"
    timing = f"step {now.work_ms:5.2f} ms  link {trip}  state {now.age_ms:5.1f} ms old  missed {now.missed}"
    return f"{where}  {timing}  interventions {now.interventions}{f'  {now.stop}' if now.stop else ''}"


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

    def listen(over: threading.Event) -> None:
        while not over.is_set():
            if not select.select([keyboard], [], [], 0.05)[0]:
                continue
            try:
                typed = os.read(keyboard, 64)
            except OSError:
                typed = b""
            if not typed or set(typed) & set(b" \r\nq"):
                runtime.stop("key" if typed else "the terminal is gone")
                return

    tty.setcbreak(keyboard)
    try:
        with beside(listen):
            yield
    finally:
        with suppress(termios.error):  # it may be gone
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """In a thread of its own, which ends soon after the event is set."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(1)
