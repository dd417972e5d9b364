"""`bot deploy DIR --robot sim|a1|MODULE:CLASS`: an exported policy on a robot, in real time."""

from __future__ import annotations

import math
import os
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ..deploy.conformance import conformance
from ..deploy.contract import Contract
from ..deploy.key import VARIABLE, find_key, write_new_key
from ..deploy.limits import A1
from ..deploy.policy import OnnxPolicy
from ..deploy.real_time import only_on, split_cores, stop_signals
from ..deploy.replay import replay
from ..deploy.robot import Robot
from ..deploy.robots import driver
from ..deploy.robots.a1 import A1Options
from ..deploy.robots.sim import SimRobot
from ..deploy.robots.sim_options import SimOptions
from ..deploy.runtime import Runtime, check
from ..deploy.runtime_config import MAX_COMMAND, RuntimeConfig, control_of
from ..deploy.safety import SafetyConfig
from ..text import printable
from .deploy_log import log_folder, print_result, robot_report, save
from .deploy_terminal import Emergency, live_line, stop_key
from .output import print_json

ABOUT = """Run an exported policy on a robot, in real time: ramp to the default pose, policy, damping.
Space, Enter, q, Ctrl-C, Ctrl-Z and Ctrl-\\ are the emergency stop: damping within one period."""


def parse(args: list[str]) -> Namespace:
    """Return the options; tyro, which the other verbs use, is not on a robot's computer."""
    parser = ArgumentParser("bot deploy", description=ABOUT, formatter_class=RawDescriptionHelpFormatter)
    add = parser.add_argument

    def add_pairs(flag: str, about: str, options: type) -> None:
        names = ", ".join(item.name for item in fields(options))
        add(flag, metavar="NAME=VALUE", nargs="+", action="extend", default=[], help=f"{about}: {names}")

    add("policy", type=Path, metavar="DIR", nargs="?", help="an exported policy, written by `bot export`")
    checked = "check a driver of your own with its robot on a stand; only damping is sent"
    add("--check", metavar="MODULE:CLASS", help=checked)
    robots = "the simulated robot in a separate process, Unitree's A1, or a driver of your own (default: sim)"
    add("--robot", default="sim", metavar="sim|a1|MODULE:CLASS", help=robots)
    length = "length of the policy's run (default: %(default)g)"
    add("--seconds", type=float, default=RuntimeConfig.seconds, metavar="S", help=length)
    dry = "compute everything, send nothing; an A1, which only answers commands, gets commands without torque"
    add("--dry-run", action="store_true", help=dry)
    replayed = "replay this log's measurements without a robot; the commands must be identical"
    add("--replay", type=Path, metavar="LOG", help=replayed)
    simulated = "options of the simulated robot and its network, such as latency_ms=20 start=lying; there are"
    add_pairs("--faults", simulated, SimOptions)
    where = "address of a robot that already runs and has the same key, such as a simulated one"
    add("--address", metavar="HOST:PORT", help=where)
    keys = f"file with the key of the link to that address, which only its owner may read (default: ${VARIABLE})"
    add("--key-file", type=Path, metavar="FILE", help=keys)
    add("--new-key", type=Path, metavar="FILE", help="write a new key for such a link, and do nothing else")
    add_pairs("--robot-options", "options of another robot, such as power_level=3; the A1 has", A1Options)
    steering = f"the policy's command, m/s and rad/s, at most {MAX_COMMAND:g} (default: the contract's)"
    add("--command", type=float, nargs="+", metavar="X", help=steering)
    rate = "commands per second, a multiple of the policy's rate (default: 100; the A1: 200)"
    add("--loop-hz", type=float, metavar="HZ", help=rate)
    add("--no-filter", action="store_true", help="use targets without the contract's low-pass filter")
    share = "share of the contract's torque limits; less for a first run on a stand (default: %(default)g)"
    add("--torque-fraction", type=float, default=SafetyConfig.torque_fraction, metavar="F", help=share)
    stale = "damping when no usable state has come for longer than this (default: %(default)g)"
    add("--stale-ms", type=float, default=SafetyConfig.stale_ms, metavar="MS", help=stale)
    tilt = "damping when the body is tilted further than this (default: %(default)g)"
    add("--max-tilt-rad", type=float, default=SafetyConfig.max_tilt_rad, metavar="RAD", help=tilt)
    log = "folder for the log, without a log in it (default: deployments/<experiment>-<date>)"
    add("--out", type=Path, metavar="DIR", help=log)
    add("--json", action="store_true", help="print one JSON object instead of lines")
    options = parser.parse_args(args)
    if options.policy is None and options.check is None and options.new_key is None:
        parser.error("the following arguments are required: DIR")
    return options


def main(args: list[str]) -> None:
    options = parse(args)
    if options.new_key is not None:
        write_new_key(options.new_key)
        if options.json:
            print_json({"key_file": str(options.new_key)})
        else:
            print(f"wrote {options.new_key}: give the robot a copy, and `bot deploy` this file as --key-file")
        return
    if options.check is not None:
        run_check(options)
        return
    policy = OnnxPolicy(options.policy)
    if options.replay is not None:
        run_replay(policy, options.replay, options.json)
        return
    contract = policy.contract
    kind = driver(options.robot)
    config, safety = run_settings(options, kind)
    robot = make_robot(options, kind, contract)
    check(contract, policy, robot, config, safety)
    emergency = Emergency()
    with log_folder(options.out, contract.experiment or "policy") as folder, stop_signals(emergency.signal):
        runtime: Runtime | None = None
        try:
            with stop_key(emergency.stop), entered(robot) as own_core:
                runtime = Runtime(contract, policy, robot, config, safety)
                emergency.watch(runtime)
                with live_line(runtime), only_on(own_core):
                    runtime.run()
        finally:  # after disconnecting: writing takes seconds, and the simulated robot's report is needed
            log = finish(options, runtime, folder) if runtime is not None and runtime.log.num_ticks else None
    stop = runtime.result().stop
    if stop is not None:
        where = "there is no log" if log is None else f"the log is in {str(log)!r}"
        raise ValueError(f"the run ended early, in damping: {stop}; {where}")
    if log is None:
        raise ValueError("the run went as planned, but its log is lost")


def run_settings(options: Namespace, robot: type[Robot]) -> tuple[RuntimeConfig, SafetyConfig]:
    """Return the settings of the run and of its safety."""
    config = RuntimeConfig(
        seconds=options.seconds,
        loop_hz=robot.loop_hz if options.loop_hz is None else options.loop_hz,
        command=None if options.command is None else tuple(options.command),
        filter=not options.no_filter,
        dry_run=options.dry_run,
    )
    safety = SafetyConfig(
        stale_ms=options.stale_ms,
        max_tilt_rad=options.max_tilt_rad,
        torque_fraction=options.torque_fraction,
        clock_drift=robot.clock_drift,
    )
    return config, safety


def finish(options: Namespace, runtime: Runtime, folder: Path) -> Path | None:
    """Write the log and print the summary; return the log's folder."""
    report = robot_report(runtime.robot)
    log, result = save(runtime, folder, options.robot, report), runtime.result()
    name = runtime.contract.experiment or "policy"
    with suppress(OSError, UnicodeError):  # the exit status does not depend on the reader; `main` reports lost output
        if options.json:
            facts = asdict(result) | {"stop": result.stop and str(result.stop)}
            print_json({"experiment": name, "robot": options.robot, **facts, "report": report, "log": log and str(log)})
        else:
            print_result(name, options.robot, result, log, report)
    return log


@contextmanager
def entered(robot: Robot) -> Iterator[frozenset[int]]:
    """Connect to the robot and yield the loop's core; a robot that runs on this computer gets the other cores."""
    mine, others = split_cores()
    with ExitStack() as stack:
        with only_on(others):
            stack.enter_context(robot)
        yield mine if robot.shares_computer else frozenset()


def make_robot(options: Namespace, kind: type[Robot], contract: Contract) -> Robot:
    """Make the robot with its options, or connect to a simulated one."""
    given, joints = robot_options(options), control_of(contract).joints
    if options.key_file is not None and options.address is None:
        raise ValueError("--key-file is for a robot at an --address; other links have a key of their own, or none")
    if options.robot == "sim":
        address = None if options.address is None else host_and_port(options.address)
        if address is None and contract.hardware is not A1:
            given = {"start": "held"} | given  # not every robot stands without its policy
        model = contract.environment.robot
        has_key = address is not None and (options.key_file is not None or VARIABLE in os.environ)
        key = find_key(options.key_file) if has_key else None
        return SimRobot.create(
            given, joints, address=address, remote=has_key, policy=options.policy, model=model, key=key
        )
    if options.address is not None:
        raise ValueError(f"--address is for a simulated robot, not for {options.robot!r}")
    return kind.create(given, joints)


def robot_options(options: Namespace) -> dict[str, Any]:
    """Return the robot's own options."""
    if options.faults and options.robot != "sim":
        raise ValueError(f"--faults are for the simulated robot, not for {options.robot!r}")
    if options.robot_options and options.robot == "sim":
        raise ValueError("--robot-options are for other robots; the simulated robot has --faults")
    given = each_once((*options.faults, *options.robot_options))
    if given.get("listen_only") and not options.dry_run:
        raise ValueError("listen_only=true sends no commands to the A1: use --dry-run, which sets it")
    return given | {"listen_only": True} if options.dry_run and options.robot == "a1" else given


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(f"an address must be HOST:PORT, the port from 1 to 65535; got {address!r}")
    return host, int(port)


def each_once(pairs: Sequence[str]) -> dict[str, Any]:
    """Return the given settings; refuse a name that is given twice."""
    found: dict[str, Any] = {}
    for name, value in map(setting, pairs):
        if name in found:
            raise ValueError(f"{name} is given more than once")
        found[name] = value
    return found


def setting(pair: str) -> tuple[str, Any]:
    """Split `latency_ms=20` into a name and a number, a truth value or a word."""
    name, equals, value = pair.partition("=")
    if not (name and equals and value):
        raise ValueError(f"an option must be NAME=VALUE; got {pair!r}")
    if value in ("true", "false"):
        return name, value == "true"
    for kind in (int, float):
        with suppress(ValueError):
            if math.isfinite(float(value)):  # `nan` is the name of a fault
                return name, kind(value)
    return name, value


def run_check(options: Namespace) -> None:
    """Check a driver, with the joints of the policy if one is given."""
    kind, given = driver(options.check), each_once(options.robot_options)
    joints = control_of(Contract.read(options.policy)).joints if options.policy else ()
    found = []
    for claim, problem in conformance(lambda: kind.create(given, joints), joints):
        found.append({"claim": claim, "problem": problem})
        if not options.json:
            print(printable(f"FAILED  {claim}: {problem}" if problem else f"ok      {claim}"), flush=True)
    failed = [one["claim"] for one in found if one["problem"]]
    if options.json:
        print_json({"driver": options.check, "checks": found})
    if failed:
        raise ValueError(f"{options.check} failed {len(failed)} of {len(found)} checks")


def run_replay(policy: OnnxPolicy, log: Path, json: bool) -> None:
    """Replay a log and compare its commands."""
    found = replay(log, policy.contract, policy)
    if json:
        with suppress(OSError):  # the comparison's result does not depend on the reader
            print_json({"log": str(log), "ticks": len(found.commands), "different_ticks": list(found.differences)})
    if not found.identical:
        raise ValueError(
            f"{len(found.differences)} of {len(found.commands)} commands differ from those of {str(log)!r}; the first "
            f"is that of tick {found.differences[0]}"
        )
    if not json:
        print(f"all {len(found.commands)} commands are those of {log}, bit for bit")
