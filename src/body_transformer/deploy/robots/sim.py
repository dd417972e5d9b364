"""The controller's side of the simulated robot; it needs no simulator itself.

    with open_robot("sim", latency_ms=20, loss_percent=5) as robot:
        state = robot.read()
        robot.send(Command.damping(12, kd=5.0))
    robot.report

Without an address it starts the robot's process and takes it down again; with one it talks to a robot that runs
already (`python -m body_transformer.deploy.robots.sim_process`). The joints, in the robot's order, are known once it is
entered.
"""

from __future__ import annotations

import ipaddress
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from typing import IO, Any, Self

from ..hardware import CommandBounds, hardware_of
from ..link import (
    FROM_ROBOT,
    Address,
    DatagramError,
    Kind,
    Link,
    Packet,
    pack_command,
    pack_names,
    unpack_names,
    unpack_state,
)
from ..robot import Command, State
from .sim_options import SimOptions, SimReport

START_TIMEOUT_S = 60.0
"""To import the simulator on a busy machine."""
HELLO_TIMEOUT_S = 5.0
REPORT_TIMEOUT_S = 2.0
RETRY_S = 0.05
MAX_ROUND_TRIP_S = 0.1
"""Measurements of a link that is slower, there and back, are not used: the runtime's own limit, by default as long,
cannot see a delay that is always the same."""
REPEATS = 5
"""A damping command or a mark is sent this often, for a network that loses some."""


class SimRobot:
    """A `Robot` across UDP."""

    def __init__(
        self,
        options: SimOptions | None = None,
        *,
        address: Address | None = None,
        expected: Sequence[str] = (),
        remote: bool = False,
    ) -> None:
        """`expected`: joint names that the robot must have, in any order; `remote`: it may be on another host."""
        if address is not None and options is not None:
            raise ValueError("options are for a robot that is started here; the one at an address has its own")
        if address is not None and not remote and not _is_loopback(address[0]):
            raise ValueError(f"{address[0]!r} is not on this host; a robot elsewhere must be asked for (remote=True)")
        self.options = options or SimOptions()
        self.joints: tuple[str, ...] = ()
        self.report: SimReport | None = None
        """How it went, once it is left."""
        self.round_trip_s = float("nan")
        """What the link takes, there and back: from sending a command to reading a measurement, less the time that the
        command had been with the robot by then. Of the newest measurement; up to a robot's period too long."""
        self.process: subprocess.Popen[bytes] | None = None
        self.link: Link | None = None
        self._commanded = False
        self._bounds: CommandBounds | None = None
        self._address = address
        self._expected = tuple(expected)
        self._output: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self.report = None
        self._commanded = False
        try:
            address = self._address or self._start()
            self._greet(address)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            if self.link is not None:
                self._leave(self.link)
        finally:
            self._end()

    def read(self) -> State | None:
        """The newest measurement that has come since the last call, unless it was under way for too long; never
        blocks."""
        newest = self._open().newest(Kind.STATE)
        if newest is None:
            return None
        now_s = time.monotonic()
        try:
            state, echo_s = unpack_state(newest, len(self.joints), now_s)
        except DatagramError as reason:
            self._open().reject(newest, reason)
            return None
        self.round_trip_s = now_s - echo_s
        return None if self.round_trip_s > MAX_ROUND_TRIP_S else state  # NaN before the first command is no delay

    def send(self, command: Command) -> Command:
        """Sends it, cut to what the A1's hardware allows, and returns what that was; what is no finite command for
        these joints is an error."""
        command.check(len(self.joints))
        if self._bounds is not None:
            command = self._bounds(command)
        self._commanded = True
        self._open().send(Kind.COMMAND, pack_command(command), time.monotonic())
        return command

    def begin_rollout(self) -> None:
        """From now on the robot's report counts: falls, distance, speed. Without it, all of the session counts."""
        self._mark(b"begin")

    def end_rollout(self) -> None:
        """What comes now, such as lying down in damping, does not count. To be left out after a stop or a fall."""
        self._mark(b"end")

    @property
    def alive(self) -> bool:
        """Whether the robot's process still runs; True for one that was not started here."""
        return self.process is None or self.process.poll() is None

    def _open(self) -> Link:
        if self.link is None:
            raise ValueError("the simulated robot is not connected: use it in a with statement")
        return self.link

    def _mark(self, what: bytes) -> None:
        now_s = time.monotonic()
        for _ in range(REPEATS):
            self._open().send(Kind.MARK, what, now_s)

    # -- the robot's process -------------------------------------------------------------------------------------------

    def _start(self) -> Address:
        command = [sys.executable, "-P", "-m", f"{__package__}.sim_process"]  # -P: not the user's folder first
        command += ["--port", "0", "--parent", str(os.getpid())]
        command += _flags(self.options)
        # a file never fills up and blocks the robot, as a pipe would
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env=_environment(),
            start_new_session=True,  # Ctrl-C is for the controller, which then damps and takes the report
        )
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            for event in self._events():
                if event.get("event") == "listening":
                    return str(event["host"]), int(event["port"])
            if not self.alive:
                break
            time.sleep(0.01)
        *_, said = self._said().decode(errors="replace").strip().rsplit("\n", 1)  # of a traceback, the error
        raise ValueError(f"the simulated robot did not start: {said}")

    def _said(self) -> bytes:
        """All that the process wrote; without moving the file's position, which it shares with the process."""
        if self._output is None:
            return b""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, 0)

    def _events(self) -> list[dict[str, Any]]:
        found = []
        for line in self._said().split(b"\n")[:-1]:
            with suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict):
                    found.append(event)
        return found

    def _end(self) -> None:
        if self.link is not None:
            self.link.close()
            self.link = None
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(2.0)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self._output is not None:
            if self.report is None and self.joints:  # lost on the way: the process has written it, too
                self.report = next((SimReport.from_dict(e) for e in self._events() if e["event"] == "report"), None)
            self._output.close()
            self._output = None

    # -- the session ---------------------------------------------------------------------------------------------------

    def _greet(self, address: Address) -> None:
        """HELLO until the robot answers; checks that its joints are the expected ones."""
        where = (socket.gethostbyname(address[0]), address[1])
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.link = Link(sock, FROM_ROBOT)
        if _is_loopback(where[0]):
            sock.bind(("127.0.0.1", 0))
        sock.connect(where)  # the kernel drops what others send
        self.link.open(where, 1 + secrets.randbelow(2**32 - 1))
        deadline_s = time.monotonic() + HELLO_TIMEOUT_S
        while time.monotonic() < deadline_s and self.alive:
            self.link.send(Kind.HELLO, pack_names(self._expected), time.monotonic())
            answer = self._wait({Kind.WELCOME, Kind.REFUSE}, RETRY_S)
            if answer is not None:
                return self._welcome(answer)
        raise ValueError(f"no robot answers at {where[0]}:{where[1]}")

    def _welcome(self, answer: Packet) -> None:
        if answer.kind is Kind.REFUSE:
            raise ValueError(f"the robot refuses: {answer.payload.decode(errors='replace')}")
        self.joints = unpack_names(answer.payload)
        if not self.joints or (self._expected and set(self.joints) != set(self._expected)):
            raise ValueError(f"the robot's joints are {self.joints}; expected were {self._expected}, in any order")
        hardware = hardware_of(self.joints)
        self._bounds = None if hardware is None else CommandBounds(hardware, self.joints)
        self._open().agree(self.joints)

    def _leave(self, link: Link) -> None:
        """Damping, unless it was only listened to; then BYE until the robot has reported."""
        damping = pack_command(Command.damping(len(self.joints)))
        for _ in range(REPEATS if self._commanded else 0):
            link.send(Kind.COMMAND, damping, time.monotonic())
        deadline_s = time.monotonic() + REPORT_TIMEOUT_S
        while time.monotonic() < deadline_s and self.alive:
            link.send(Kind.BYE, b"", time.monotonic())
            answer = self._wait({Kind.REPORT}, RETRY_S)
            if answer is not None:
                try:
                    self.report = SimReport.unpack(answer.payload)
                    return
                except DatagramError as reason:
                    link.reject(answer, reason)

    def _wait(self, kinds: set[Kind], seconds: float) -> Packet | None:
        """The first packet of one of these kinds."""
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s:
            for packet in self._open().receive():
                if packet.kind in kinds:
                    return packet
            time.sleep(0.001)
        return None


def create(
    address: Address | None = None, expected: Sequence[str] = (), remote: bool = False, **options: Any
) -> SimRobot:
    """The simulated robot; what is not named here is an option of `SimOptions`."""
    chosen = SimOptions.from_dict(options) if options else None
    return SimRobot(chosen, address=address, expected=expected, remote=remote)


def _flags(options: SimOptions) -> list[str]:
    """As the process reads them; `--name=value`, so that a negative payload is no flag."""
    flags = []
    for field in fields(options):
        flag, value = f"--{field.name.replace('_', '-')}", getattr(options, field.name)
        if value == field.default:
            continue
        flags += [flag, *map(repr, value)] if isinstance(value, tuple) else [f"{flag}={value}"]
    return flags


def _environment() -> dict[str, str]:
    """One thread each: the robot's process must not take the controller's cores."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
