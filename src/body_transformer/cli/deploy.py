"""`bot deploy DIR --robot sim|a1`: an exported policy on a robot, in real time."""

from __future__ import annotations

import math
from argparse import SUPPRESS, ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..deploy import cores
from ..deploy.log_folder import claimed
from ..deploy.plan import MAX_COMMAND, Phase, RuntimeConfig, control_of
from ..deploy.policy import OnnxPolicy
from ..deploy.preflight import check
from ..deploy.replay import replay
from ..deploy.robot import Robot
from ..deploy.robots import open_robot
from ..deploy.robots.a1 import A1Options
from ..deploy.robots.sim_options import SimOptions
from ..deploy.runtime import Runtime
from ..deploy.safety import SafetyConfig
from ..deploy.signals import handled
from .deploy_result import save, tell, tell_json
from .emergency import Emergency, stop_key
from .live_line import live_line
from .output import print_json

SAFETY: dict[str, dict[str, Any]] = {"sim": {"clock_drift": 0.2}}
"""Robot -> what differs for it: where the computer is too slow for real time, the simulated robot's clock is slow."""
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
_PAIRS: dict[str, Any] = {"action": "extend", "nargs": "+", "metavar": "NAME=VALUE"}
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
    | {
        "help": "of the simulated robot and its network, such as latency_ms=20 start=lying; there are: "
        + ", ".join(field.name for field in fields(SimOptions))
    },
    "address": {
        "metavar": "HOST:PORT",
        "help": "of a simulated robot that runs already, on this computer; it has its own faults",
    },
    "robot_options": _PAIRS
    | {"help": f"of the A1, such as power_level=3; there are: {', '.join(field.name for field in fields(A1Options))}"},
    "command": _NUMBER
    | {
        "nargs": "+",
        "metavar": "X",
        "help": f"what the policy is told to do, m/s and rad/s, {MAX_COMMAND:g} at most (default: the contract's)",
    },
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
        "help": "where the log goes; a folder that has one is refused (default: deployments/<experiment>-<date>)",
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
    config, safety = settings(options)
    robot = open_robot(options.robot, expected=control.joints, **robot_settings(options))
    check(contract, policy, robot, config, safety)
    emergency = Emergency()
    with claimed(options.out, contract.experiment or "policy") as folder, handled(emergency.signal):
        runtime: Runtime | None = None
        try:
            with stop_key(emergency.stop), entered(robot) as own_core:
                runtime = Runtime(contract, policy, robot, config, safety, on_phase=lambda phase: mark(runtime, phase))
                emergency.watch(runtime)
                with live_line(runtime), cores.only(own_core):
                    runtime.run()
        finally:  # when the robot is left: writing takes seconds, and the simulated one has said how it went
            log = finish(options, runtime, folder) if runtime is not None and runtime.log.num_ticks else None
    stop = runtime.result().stop
    if stop is not None:
        where = "there is no log" if log is None else f"the log is in {str(log)!r}"
        raise ValueError(f"the run ended early, in damping: {stop}; {where}")
    if log is None:
        raise ValueError("the run went as planned, but its log is lost")


def settings(options: Deploy) -> tuple[RuntimeConfig, SafetyConfig]:
    """How the run goes, and what it watches."""
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
    return config, safety


def finish(options: Deploy, runtime: Runtime, folder: Path) -> Path | None:
    """Writes the log, prints how it went, and says where the log is; whatever else fails, the stop can be told."""
    seen = getattr(runtime.robot, "report", None)
    report = None if seen is None else seen.to_dict()
    log = save(runtime, folder, {"robot": options.robot, "report": report})
    with suppress(OSError, UnicodeError):  # the status does not depend on who reads; `main` says what is not written
        name = runtime.contract.experiment or "policy"
        (tell_json if options.json else tell)(name, options.robot, runtime.result(), log, report)
    return log


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
    given = each_once((*options.faults, *options.robot_options))
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
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(f"an address is HOST:PORT, the port from 1 to 65535, not {address!r}")
    return host, int(port)


def each_once(pairs: tuple[str, ...]) -> dict[str, Any]:
    """The settings that are given; the same name twice is a mistake."""
    found = [setting(pair) for pair in pairs]
    for name, count in Counter(name for name, _ in found).items():
        if count > 1:
            given = ", ".join(pair for pair in pairs if pair.startswith(f"{name}="))
            raise ValueError(f"{name} is given {count} times: {given}")
    return dict(found)


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
        with suppress(OSError):  # whether they are the same does not depend on who reads
            print_json({"log": str(log), "ticks": len(found.commands), "different_ticks": list(found.differences)})
    if not found.identical:
        raise ValueError(
            f"{len(found.differences)} of {len(found.commands)} commands are not those of {str(log)!r}; the first is "
            f"that of tick {found.differences[0]}"
        )
    if not json:
        print(f"all {len(found.commands)} commands are those of {log}, bit for bit")
