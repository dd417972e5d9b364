"""The simulated robot: a separate process that a controller reaches over UDP, like a real robot.

    bot deploy --new-key sim.key
    python -m body_transformer.deploy.robots.sim_process --policy DIR --port 47001 --key-file sim.key --latency-ms 20

It runs in real time, damps by itself when commands stop, and accepts one controller at a time, which must have the
same key. Every session starts in the start pose. It prints its events, one JSON object per line: `listening` first,
`report` last. It ends at SIGTERM or Ctrl-C. With `--parent PID` it also ends after the first session and when that
process is gone, and that process writes the key to its standard input.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import socket
import sys
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..key import find_key, parse_key
from ..link import FROM_CONTROLLER, Address, DatagramError, Kind, Link, Packet, answer_to_version_2
from ..payloads import pack_names, pack_state, unpack_command, unpack_names
from ..robot import Command, State
from .sim_body import MotionRecorder, SimBody
from .sim_model import sim_model
from .sim_options import DEFAULT_PORT, Channel, SimOptions, SimReport

SILENT_PEER_S = 1.0
"""After this silence of a controller, the robot accepts the HELLO of another one."""
LINGER_S = 0.5
"""Time after the first BYE in which the robot answers further ones, because its report may get lost."""
MAX_BEHIND_S = 0.01
"""After a longer pause the robot does not catch up; the lost simulated time is counted in `lag_s`."""
MAX_EVENTS = 1000
"""An unsteady link must not fill a disk."""


@dataclass
class _Session:
    """State of one controller's session; times are on the robot's clock."""

    command: Command | None = None
    command_s: float = 0.0
    first_s: float | None = None
    """Time of the first command."""
    heard_s: float = 0.0
    """Time of the last datagram."""
    bye_s: float | None = None
    stamp_s: float = math.nan
    """The stamp of the newest command, on the controller's clock."""
    mark_s: float = math.nan
    """The stamp of the last mark."""
    commands: int = 0
    timeouts: int = 0
    damping: bool = False
    state: State | None = None


class SimProcess:
    """The robot: body, network and session."""

    def __init__(
        self,
        options: SimOptions,
        sock: socket.socket,
        key: bytes,
        parent: int | None = None,
        policy: Path | None = None,
    ) -> None:
        self.options = options
        self.body = SimBody(options, sim_model(policy))
        self.link = Link(sock, FROM_CONTROLLER, key)
        self.rollout = MotionRecorder(self.body)
        self.stopped = False
        self._parent = parent
        self._orphan_s: float | None = None
        self._rng = np.random.default_rng(options.seed)
        self._inbound: Channel[tuple[bytes, Address]] = Channel(options, 1)
        self._outbound: Channel[tuple[bytes, Address]] = Channel(options, 2)
        self._steps = round(options.physics_hz / options.state_hz)
        self._lag_s = 0.0
        self._events = 0
        self._start_session()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self) -> SimReport:
        """Run until it is stopped, its parent is gone, or its only session is over."""
        host, port = self.link.address
        self._say("listening", host=host, port=port, joints=self.body.joints, options=asdict(self.options))
        period_s = 1.0 / (self.options.state_hz * self.options.real_time_factor)
        due_s = time.monotonic()
        while not self._is_over():
            self.tick()
            due_s += period_s
            wait_s = due_s - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
            elif wait_s < -MAX_BEHIND_S:
                self._lag_s -= wait_s
                due_s -= wait_s
        report = self.report()
        self._say("report", always=True, **asdict(report))
        self.link.close()
        return report

    def tick(self) -> None:
        """Advance by one measurement: take datagrams in, compute the physics, send a measurement."""
        for datagram in self.link.datagrams():
            self._inbound.put(self.body.time_s, datagram)
        for data, address in self._inbound.take(self.body.time_s):
            packet = self.link.accept(data, address)
            if packet is not None:
                self._handle(packet, address)
            elif (answer := answer_to_version_2(data)) is not None:
                self._outbound.put(self.body.time_s, (answer, address))
        command = self._current()
        for _ in range(self._steps):
            self.body.step(command)
        self.rollout.watch()
        if self.link.peer is not None:
            self._send_state(self.link.peer)
        for data, address in self._outbound.take(self.body.time_s):
            self.link.transmit(data, address)

    def report(self) -> SimReport:
        """Return the report so far."""
        return SimReport(
            **asdict(self.rollout.outcome()),
            commands=self._session.commands,
            timeouts=self._session.timeouts,
            refused=self.link.refused.total(),
            lag_s=self._lag_s,
        )

    def _is_over(self) -> bool:
        if self.stopped:
            return True
        now_s = self.body.time_s
        if self._parent is None:
            return False
        if os.getppid() != self._parent and self._orphan_s is None:
            self._orphan_s = now_s
        since_s = min((t for t in (self._orphan_s, self._session.bye_s) if t is not None), default=now_s)
        return now_s - since_s > LINGER_S + self.options.command_timeout_ms / 1e3

    # -- motors and measurements ---------------------------------------------------------------------------------------

    def _current(self) -> Command:
        """Return the command in force: the newest one, unless it is too old."""
        if self._session.command is None:
            return self.body.idle()
        silent_s = self.body.time_s - self._session.command_s
        damping = self._session.bye_s is not None or silent_s > self.options.command_timeout_ms / 1e3 - 1e-9
        if damping != self._session.damping:
            self._session.damping = damping
            self._session.timeouts += damping and self._session.bye_s is None
            self._say("damping" if damping else "recovered", silent_ms=1e3 * silent_s)
        return self.body.damping() if damping else self._session.command

    def _send_state(self, peer: Address) -> None:
        since_s = -1.0 if self._session.first_s is None else self.body.time_s - self._session.first_s
        broken = bool(self.options.fault) and since_s >= self.options.fault_at_s
        if broken and self.options.fault == "silent":
            return
        state = self.body.measure(0, self._rng)
        if broken:
            state = _break(state, self.options.fault, self._session.state)
        self._session.state = state
        payload = pack_state(state, self._session.stamp_s + self._held_s())
        self._outbound.put(self.body.time_s, (self.link.number(Kind.STATE, payload, self.body.time_s), peer))

    def _held_s(self) -> float:
        """Return the age of the newest command on the controller's clock; a command of this tick has age 0."""
        now_s = self.body.time_s - 1 / self.options.state_hz  # when the tick began
        return max(now_s - self._session.command_s, 0.0) / self.options.real_time_factor

    # -- the session ---------------------------------------------------------------------------------------------------

    def _start_session(self) -> None:
        self.body.reset()
        self.rollout.begin()
        self._inbound.clear()
        self._outbound.clear()
        self._session = _Session()

    def _handle(self, packet: Packet, address: Address) -> None:
        try:
            if packet.kind in (Kind.HELLO, Kind.OPEN):
                (self._hello if packet.kind is Kind.HELLO else self._open)(packet, address)
                return
            self._session.heard_s = self.body.time_s
            if packet.kind is Kind.BYE:
                self._bye(packet)
            elif packet.kind is Kind.COMMAND and self._session.bye_s is None:
                self._take(packet)
            elif packet.kind is Kind.MARK:
                self._mark(packet)
        except DatagramError as reason:
            self.link.reject(packet, reason)

    def _hello(self, packet: Packet, address: Address) -> None:
        if packet.payload:
            raise DatagramError("payload")
        self._answer(packet, address, Kind.CHALLENGE, self.link.challenge(packet.session, address))

    def _open(self, packet: Packet, address: Address) -> None:
        wanted = unpack_names(packet.payload)
        if (address, packet.session) != (self.link.peer, self.link.session):
            nonce = self.link.challenge(packet.session, address)
            self.link.next_attempt()
            if self._is_taken():
                return self._answer(packet, address, Kind.REFUSE, b"the robot has another controller")
            if wanted and set(wanted) != set(self.body.joints):
                reason = f"the robot's joints are {', '.join(self.body.joints)}"
                return self._answer(packet, address, Kind.REFUSE, reason.encode())
            self._start_session()
            self.link.open(address, packet.session, nonce, self.body.joints)
            self._say("session", peer=address, session=packet.session.hex())
        self._reply(Kind.WELCOME, pack_names(self.body.joints))
        return None

    def _is_taken(self) -> bool:
        silent_s = self.body.time_s - self._session.heard_s
        return self.link.peer is not None and self._session.bye_s is None and silent_s < SILENT_PEER_S

    def _answer(self, greeting: Packet, address: Address, kind: Kind, payload: bytes) -> None:
        data = self.link.answer(greeting, kind, payload, self.body.time_s)
        self._outbound.put(self.body.time_s, (data, address))

    def _take(self, packet: Packet) -> None:
        self._session.command = unpack_command(packet, len(self.body.joints))
        self._session.command_s = self.body.time_s
        self._session.stamp_s = packet.stamp_s
        self._session.commands += 1
        if self._session.first_s is None:
            self._session.first_s = self.body.time_s

    def _mark(self, packet: Packet) -> None:
        marks = {b"begin": self._begin, b"end": self.rollout.end}
        if packet.payload not in marks:
            raise DatagramError("payload")
        if packet.stamp_s != self._session.mark_s:  # repeats have the same stamp
            self._session.mark_s = packet.stamp_s
            marks[packet.payload]()

    def _begin(self) -> None:
        self.body.release()
        self.rollout.begin()

    def _bye(self, packet: Packet) -> None:
        if packet.payload:
            raise DatagramError("payload")
        self.rollout.end()
        if self._session.bye_s is None:
            self._session.bye_s = self.body.time_s
            self._say("bye")
        self._reply(Kind.REPORT, self.report().pack())

    def _reply(self, kind: Kind, payload: bytes) -> None:
        if self.link.peer is not None:
            data = self.link.number(kind, payload, self.body.time_s)
            self._outbound.put(self.body.time_s, (data, self.link.peer))

    def _say(self, event: str, always: bool = False, **details: Any) -> None:
        self._events += 1
        if self._events > MAX_EVENTS and not always:
            return
        try:
            print(json.dumps({"event": event, "time_s": round(self.body.time_s, 6), **details}), flush=True)
        except OSError:  # the reader is gone
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def _break(state: State, fault: str, last: State | None) -> State:
    """Return the measurement as broken sensors would give it."""
    if fault == "frozen" and last is not None:
        return last
    if fault == "nan":
        state.joint_pos[:] = np.nan
    elif fault == "absurd":
        state.joint_vel[:] = 1e6
    return state


def main(argv: list[str] | None = None) -> int:
    """Run `python -m body_transformer.deploy.robots.sim_process`."""
    parser = argparse.ArgumentParser(prog="sim_process", description="A simulated robot, reached over UDP.")
    parser.add_argument("--policy", type=Path, help="exported policy whose robot is simulated; default: an A1")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; default: the loopback interface")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="0: any free one")
    parser.add_argument("--parent", type=int, help="id of a process; the robot ends when that process is gone")
    parser.add_argument("--key-file", type=Path, help="file with the key of the link; default: BOT_LINK_KEY")
    for field in fields(SimOptions):
        flag = f"--{field.name.replace('_', '-')}"
        if field.name == "start_joints":
            parser.add_argument(flag, type=float, nargs="*", default=())
        else:
            parser.add_argument(
                flag, type=type(field.default), default=field.default, help=f"default: {field.default!r}"
            )
    given = vars(parser.parse_args(argv))
    host, port, parent, policy, key_file = (
        given.pop(name) for name in ("host", "port", "parent", "policy", "key_file")
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            key = find_key(key_file) if parent is None else parse_key(sys.stdin.readline(), "standard input")
            sock.bind((host, port))
            robot = SimProcess(SimOptions.from_dict(given), sock, key, parent, policy)
        except (OSError, ValueError) as error:
            print(f"the simulated robot cannot start at {host}:{port}: {error}", file=sys.stderr)
            return 2
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(robot, "stopped", True))
        robot.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
