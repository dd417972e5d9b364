"""Both ends of the link between controller and robot, as readers of datagrams."""

from __future__ import annotations

import math
import struct
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from body_transformer.deploy.link import FROM_CONTROLLER, FROM_ROBOT, DatagramError, Kind, Link, Packet, joints_checksum
from body_transformer.deploy.observation import JointOrder, Measured
from body_transformer.deploy.payloads import pack_command, pack_names, pack_state, unpack_names, unpack_state
from body_transformer.deploy.robot import Command, State
from body_transformer.deploy.robots.sim import SimRobot
from body_transformer.deploy.robots.sim_options import SimOptions, SimReport
from body_transformer.deploy.robots.sim_process import SimProcess
from body_transformer.deploy.safety import SafetyConfig
from body_transformer.deploy.state_check import StateCheck
from body_transformer.text import printable

from ..deploy.datagrams import KEY, NONCE, SESSION, sealed, udp
from ..deploy.virtual_robot import ROBOT_JOINTS, a1_contract
from .content import NAMES, mutate_bytes
from .inputs import Files, Reader

FILE = "datagrams.txt"
"""One datagram per line, in hexadecimal."""
PEER = ("127.0.0.1", 9)
STRANGER = ("127.0.0.1", 10)
FLOATS = (0.0, -1.0, math.nan, math.inf, -math.inf, 1e300, -1e7, 5e-324)
SEQUENCES = (0, 1, 2, 7, 2**24, 2**24 + 1, 2**63, 2**64 - 1)
JOINTS = tuple(ROBOT_JOINTS)


@cache
def ends() -> tuple[Link, Link]:
    """Return the robot's and the controller's end, which seal datagrams."""
    robot, controller = Link(udp(), FROM_CONTROLLER, KEY), Link(udp(), FROM_ROBOT, KEY)
    for end in (robot, controller):
        end.open(PEER, SESSION, NONCE, JOINTS)
    return robot, controller


def payloads() -> dict[Kind, bytes]:
    """Return a valid payload of every kind."""
    pose = np.zeros(12)
    command = Command(pose, pose, np.full(12, 10.0), np.ones(12), pose)
    state = State(0, 0.0, 0.0, pose, pose, pose, np.zeros(3), np.array([1.0, 0, 0, 0]))
    report = SimReport(False, -1.0, 5.0, 2.5, 0.1, 0.5, 0.2, 20.0, commands=7, timeouts=0, refused=3, lag_s=0.0)
    names = pack_names(JOINTS)
    return {
        Kind.HELLO: names,
        Kind.OPEN: names,
        Kind.COMMAND: pack_command(command),
        Kind.MARK: b"begin",
        Kind.BYE: b"",
        Kind.WELCOME: names,
        Kind.REFUSE: b"no",
        Kind.STATE: pack_state(state, math.nan),
        Kind.REPORT: report.pack(),
        Kind.CHALLENGE: NONCE,
    }


def changed_payload(chance: Random, payload: bytes) -> bytes:
    """Return a payload with other numbers, names or bytes."""
    way = chance.randrange(6)
    if way < 2 and len(payload) >= 8:
        at = 8 * chance.randrange(len(payload) // 8)
        return payload[:at] + struct.pack("<d", chance.choice(FLOATS)) + payload[at + 8 :]
    if way == 2:
        names = [chance.choice((*NAMES, "FR_hip_joint")) for _ in range(chance.choice((1, 2, 12, 70)))]
        return "\n".join(names).encode("utf-8", "surrogatepass")[: chance.choice((100, 3000))]
    if way == 3:
        return payload * chance.choice((0, 2, 3))
    return mutate_bytes(chance, payload)[:4000]


def datagram(chance: Random, sender: Link, kinds: list[Kind], sequence: int) -> bytes:
    """Return a datagram of the session that is wrong in some parts, most of them with a valid digest."""
    kind = chance.choice(kinds if chance.random() < 0.95 else list(Kind))
    payload = payloads()[kind]
    if chance.random() < 0.6:
        payload = changed_payload(chance, payload)
    packet = Packet(
        kind,
        chance.randbytes(16) if chance.random() < 0.1 else SESSION,
        chance.getrandbits(32) if chance.random() < 0.1 else joints_checksum(JOINTS),
        chance.choice(SEQUENCES) if chance.random() < 0.2 else sequence,
        chance.choice(FLOATS) if chance.random() < 0.3 else 0.01 * sequence,
        payload,
    )
    data = sealed(packet, sender)
    return mutate_bytes(chance, data) if chance.random() < 0.2 else data


def mutate_for(robot: bool) -> Any:
    """Return the mutation that makes datagrams for one end of the link."""

    def mutate(chance: Random, files: Files) -> bool:
        sender = ends()[1 if robot else 0]
        kinds = sorted(FROM_CONTROLLER if robot else FROM_ROBOT)
        count = chance.choice((1, 2, 5, 20))
        files[FILE] = "\n".join(datagram(chance, sender, kinds, k + 1).hex() for k in range(count)).encode()
        return True

    return mutate


def _valid(robot: bool, folder: Path) -> None:
    (folder / "one").mkdir()
    kind = Kind.COMMAND if robot else Kind.STATE
    data = sealed(Packet(kind, SESSION, joints_checksum(JOINTS), 1, 0.0, payloads()[kind]), ends()[1 if robot else 0])
    (folder / "one" / FILE).write_text(data.hex())


def _lines(folder: Path) -> list[tuple[bytes, tuple[str, int]]]:
    lines = (folder / FILE).read_text().split("\n")
    return [(bytes.fromhex(line), STRANGER if k % 7 == 6 else PEER) for k, line in enumerate(lines)]


def _raise_refused(link: Link) -> None:
    """Raise the reasons of refused datagrams, so that they count as refusals."""
    reasons = ", ".join(sorted(link.refused))
    link.refused.clear()
    if reasons:
        raise ValueError(f"refused: {reasons}")


# -- the two ends ------------------------------------------------------------------------------------------------------


@cache
def _robot() -> SimProcess:
    robot = SimProcess(SimOptions(), udp(), KEY)
    robot.link.transmit = lambda data, address: None  # type: ignore[method-assign]  # no socket listens
    return robot


def _read_by_robot(folder: Path) -> None:
    robot = _robot()
    robot._start_session()
    robot.link.open(PEER, SESSION, NONCE, robot.body.joints)
    waiting = _lines(folder)
    robot.link.datagrams = lambda: iter(waiting)  # type: ignore[method-assign]
    robot.tick()
    waiting = []
    robot.tick()
    if not np.isfinite(robot.report().distance_m):
        raise AssertionError("a datagram broke the simulation")
    _raise_refused(robot.link)


@cache
def _controller() -> tuple[SimRobot, StateCheck]:
    control = a1_contract().control
    assert control is not None
    robot = SimRobot(address=PEER, key=KEY)
    robot.link, robot.joints = ends()[1], JOINTS
    order = JointOrder(control.joints, JOINTS)
    return robot, StateCheck(control, SafetyConfig(), order, Measured(12))


def _read_by_controller(folder: Path) -> None:
    robot, check = _controller()
    link = robot.link
    assert link is not None
    link.open(PEER, SESSION, NONCE, JOINTS)
    link.datagrams = lambda: iter(_lines(folder))  # type: ignore[method-assign]
    if (state := robot.read()) is not None:
        check(state, 0.0)
    link.open(PEER, SESSION, NONCE, JOINTS)
    for packet in link.receive():
        try:
            _UNPACK[packet.kind](packet)
        except DatagramError as reason:
            link.reject(packet, reason)
    _raise_refused(link)


_UNPACK = {
    Kind.STATE: lambda packet: unpack_state(packet, 12, 0.0),
    Kind.WELCOME: lambda packet: unpack_names(packet.payload),
    Kind.REPORT: lambda packet: SimReport.unpack(packet.payload),
    Kind.REFUSE: lambda packet: print(printable(packet.payload.decode(errors="replace"))),
    Kind.CHALLENGE: lambda packet: packet.payload,
}

DATAGRAMS = {
    "link-robot": Reader(lambda folder: _valid(True, folder), _read_by_robot, shape=mutate_for(True)),
    "link-controller": Reader(lambda folder: _valid(False, folder), _read_by_controller, shape=mutate_for(False)),
}
