"""The controller's side of the simulated robot, which needs no simulator itself.

    with open_robot("sim", latency_ms=20, loss_percent=5) as robot:
        state = robot.read()
        robot.send(Command.damping(12, kd=5.0))
    robot.report

Without an address it starts the robot's process, with a new key for the link, and ends it again. With an address it
connects to a robot that is running already (`python -m body_transformer.deploy.robots.sim_process`) and has the same
key. The joints, in the robot's order, are known after `__enter__`.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import IO, Any, Self

from ...policy_folder import find_policy
from ...text import printable
from ..key import find_key, new_key
from ..limits import CommandBounds, hardware_of
from ..link import FROM_ROBOT, NONCE_BYTES, VERSION, Address, DatagramError, Kind, Link, Packet
from ..payloads import pack_command, pack_names, unpack_names, unpack_state
from ..robot import Command, Robot, State
from .sim_options import SimOptions, SimReport

START_TIMEOUT_S = 60.0
"""Time to import the simulator on a busy machine."""
HELLO_TIMEOUT_S = 5.0
REPORT_TIMEOUT_S = 2.0
RETRY_S = 0.05
MAX_ROUND_TRIP_S = 0.1
"""Measurements with a longer round trip are not used. The runtime's own limit, by default as long, cannot detect a
constant delay."""
REPEATS = 5
"""Number of times that a damping command or a mark is sent, because the network may lose datagrams."""


class SimRobot(Robot):
    """The simulated robot, across UDP."""

    loop_hz = 100.0
    """At 50 Hz, two lost commands in a row exceed the robot's time-out of 50 ms. With 5 % loss this happens once in
    10 s, at 100 Hz once in half an hour. The rate is not higher because robot and controller share a computer."""
    clock_drift = 0.2
    """Where the computer is too slow for real time, the simulated robot's clock is slow."""
    estimates_velocity = True

    def __init__(
        self,
        options: SimOptions | None = None,
        *,
        address: Address | None = None,
        expected: Sequence[str] = (),
        remote: bool = False,
        policy: Path | None = None,
        model: str | None = None,
        key: bytes | None = None,
    ) -> None:
        """Prepare a connection.

        Args:
            options: of a robot that is started here.
            address: of a robot that is running already.
            expected: joint names that the robot must have, in any order.
            remote: allow a robot on another host.
            policy: exported policy whose robot is started; None: an A1.
            model: name of the robot's model, which selects the hardware's bounds; None: the joints select them.
            key: of the link to a robot at an address; None: the one in BOT_LINK_KEY.
        """
        if address is not None and options is not None:
            raise ValueError("options are for a robot that is started here; the one at an address has its own")
        if address is not None and not remote and not _is_loopback(address[0]):
            raise ValueError(f"{address[0]!r} is not on this host; a robot elsewhere needs remote=True and a key")
        self.options = options or SimOptions()
        self.joints: tuple[str, ...] = ()
        self.report: SimReport | None = None
        """The robot's report, set by `__exit__`."""
        self.round_trip_s = float("nan")
        """Round trip of the newest measurement: from sending a command to reading the measurement, minus the time for
        which the robot held the command. It may be too long by up to one period of the robot."""
        self.process: subprocess.Popen[bytes] | None = None
        self.link: Link | None = None
        self.shares_computer = address is None
        self._commanded = False
        self._bounds: CommandBounds | None = None
        self._address, self._policy, self._model = address, policy, model
        self._key = key or (new_key() if address is None else find_key())
        self._expected = tuple(expected)
        self._output: IO[bytes] | None = None

    @classmethod
    def create(cls, options: Mapping[str, Any], expected: Sequence[str] = (), **of_robot: Any) -> Self:
        """Make the simulated robot; `options` are those of `SimOptions`, `of_robot` the class's other arguments."""
        return cls(SimOptions.from_dict(options) if options else None, expected=expected, **of_robot)

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
        """Return the newest measurement since the last call, unless its round trip was too long; never block."""
        link, newest = self._open(), None
        for packet in link.receive():
            if packet.kind is Kind.STATE:
                try:
                    newest, echo_s = unpack_state(packet, len(self.joints), time.monotonic())
                except DatagramError as reason:
                    link.reject(packet, reason)
        if newest is None:
            return None
        self.round_trip_s = newest.received_s - echo_s
        return None if self.round_trip_s > MAX_ROUND_TRIP_S else newest  # NaN before the first command: used

    def send(self, command: Command) -> Command:
        """Send a command, cut to the hardware's bounds if they are known, and return it; refuse an invalid command."""
        command.check(len(self.joints))
        if self._bounds is not None:
            command = self._bounds(command)
        self._commanded = True
        self._open().send(Kind.COMMAND, pack_command(command), time.monotonic())
        return command

    def begin_rollout(self) -> None:
        """Begin the report's rollout: falls, distance, speed. Without it, the whole session counts."""
        self._mark(b"begin")

    def end_rollout(self) -> None:
        """End the report's rollout: what follows, such as lying down in damping, does not count."""
        self._mark(b"end")

    def summary(self) -> dict[str, Any] | None:
        """Return the robot's report, after `__exit__`."""
        return None if self.report is None else asdict(self.report)

    @property
    def alive(self) -> bool:
        """Whether the robot's process still runs; True for a robot that was not started here."""
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
        command += ["--policy", str(find_policy(self._policy).path)] if self._policy else []
        command += _flags(self.options)
        key, end = os.pipe()  # unlike arguments, a pipe is not seen by other users
        os.write(end, f"{self._key.hex()}\n".encode())
        os.close(end)
        # a file, because a full pipe would block the robot
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            command,
            stdin=key,
            stdout=self._output,
            stderr=self._output,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # so that it does not take the controller's cores
            start_new_session=True,  # Ctrl-C goes to the controller, which damps and takes the report
        )
        os.close(key)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            for event in self._events():
                if event.get("event") == "listening":
                    return str(event["host"]), int(event["port"])
            if not self.alive:
                break
            time.sleep(0.01)
        *_, error = self._output_text().decode(errors="replace").strip().rsplit("\n", 1)  # last line of a traceback
        raise ValueError(f"the simulated robot did not start: {printable(error)}")

    def _output_text(self) -> bytes:
        """Return the process's output so far, without moving the file's position, which the process shares."""
        if self._output is None:
            return b""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, 0)

    def _events(self) -> list[dict[str, Any]]:
        found = []
        for line in self._output_text().split(b"\n")[:-1]:
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
            if self.report is None and self.joints:  # lost on the link, but also printed by the process
                self.report = next((SimReport.from_dict(e) for e in self._events() if e["event"] == "report"), None)
            self._output.close()
            self._output = None

    # -- the session ---------------------------------------------------------------------------------------------------

    def _greet(self, address: Address) -> None:
        """Open a session, and check that the robot's joints are the expected ones."""
        where = (socket.gethostbyname(address[0]), address[1])
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.link = link = Link(sock, FROM_ROBOT, self._key)
        if _is_loopback(where[0]):
            sock.bind(("127.0.0.1", 0))
        sock.connect(where)  # the kernel drops datagrams of others
        link.open(where, secrets.token_bytes(NONCE_BYTES))
        kinds = {Kind.CHALLENGE, Kind.WELCOME, Kind.REFUSE}
        for answer in self._answers(Kind.HELLO, b"", kinds, HELLO_TIMEOUT_S):
            if answer.kind is not Kind.CHALLENGE:
                break
            if len(answer.payload) == NONCE_BYTES:
                link.agree_nonce(answer.payload)
                link.send(Kind.OPEN, pack_names(self._expected), time.monotonic())
        else:
            raise ValueError(
                f"no robot answers at {where[0]}:{where[1]}: either none runs there, or it has another key or another "
                f"version of the link than {VERSION}"
            )
        if answer.kind is Kind.REFUSE:
            raise ValueError(f"the robot refuses: {printable(answer.payload.decode(errors='replace'))}")
        self.joints = unpack_names(answer.payload)
        if not self.joints or (self._expected and set(self.joints) != set(self._expected)):
            raise ValueError(f"the robot's joints are {self.joints}; expected {self._expected}, in any order")
        hardware = hardware_of(self.joints, self._model)
        self._bounds = None if hardware is None else CommandBounds(hardware, self.joints)
        self._open().agree(self.joints)

    def _leave(self, link: Link) -> None:
        """Send damping if any command was sent, then BYE until the robot has reported."""
        damping = pack_command(Command.damping(len(self.joints)))
        for _ in range(REPEATS if self._commanded else 0):
            link.send(Kind.COMMAND, damping, time.monotonic())
        for answer in self._answers(Kind.BYE, b"", {Kind.REPORT}, REPORT_TIMEOUT_S):
            try:
                self.report = SimReport.unpack(answer.payload)
                return
            except DatagramError as reason:
                link.reject(answer, reason)

    def _answers(self, kind: Kind, payload: bytes, kinds: set[Kind], seconds: float) -> Iterator[Packet]:
        """Send a datagram again and again for this time, and yield the robot's answers of these kinds."""
        link, deadline_s = self._open(), time.monotonic() + seconds
        while time.monotonic() < deadline_s and self.alive:
            link.send(kind, payload, time.monotonic())
            retry_s = time.monotonic() + RETRY_S
            while time.monotonic() < retry_s:
                yield from (packet for packet in link.receive() if packet.kind in kinds)
                time.sleep(0.001)


def _flags(options: SimOptions) -> list[str]:
    """Return the process's flags, as `--name=value`, so that a negative payload is not read as a flag."""
    flags = []
    for field in fields(options):
        flag, value = f"--{field.name.replace('_', '-')}", getattr(options, field.name)
        if value == field.default:
            continue
        flags += [flag, *map(repr, value)] if isinstance(value, tuple) else [f"{flag}={value}"]
    return flags


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
