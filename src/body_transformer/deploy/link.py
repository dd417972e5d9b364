"""Datagrams between a controller and a robot. Every datagram has one fixed binary layout, little-endian:

    magic "BoTL" | version u8 | kind u8 | payload length u16 | session u32 | joints u32 | sequence u64 | stamp f64
    payload (a fixed number of f64 for a given number of joints; names and reasons are UTF-8)
    CRC-32 of everything before it, u32

A session starts with the controller's HELLO, which holds the joint names it expects, or none. The robot answers WELCOME
with its joint names in its order, or REFUSE with the reason. From then on each side accepts a datagram only

- from the other side's address, with the session's number,
- with the checksum of the agreed joint names, if it is a command or a state,
- with a sequence number above the last one of its kind, by at most `MAX_AHEAD`.

Other datagrams are ignored and counted. Received data is never executed or unpickled.

The CRC detects damage, not attacks: a program that can write to the controller's socket can command the robot. Keep
the link on the loopback interface or on a separate cable.
"""

from __future__ import annotations

import socket
import struct
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from .robot import BODY, COMMAND, FLOAT64, Command, State, split_body

MAGIC = b"BoTL"
VERSION = 2
"""Version 1 had no linear velocity in states."""
MAX_JOINTS = 64
MAX_DATAGRAM = 4096
"""Bytes; the longest COMMAND, for 64 joints, has 2596."""
MAX_VALUE = 1e6
"""Largest value in a command; more is invalid, and its products could overflow."""
MAX_WAITING = 512
"""Largest number of datagrams per read. A flood cannot block the loop, and one read takes all states that the kernel
buffered during a pause."""
MAX_AHEAD = 2**24
"""Largest step of a sequence number, hours of measurements. After a larger one, every valid datagram would be old."""

_HEADER = struct.Struct("<4sBBHIIQd")
_CRC = struct.Struct("<I")
_FLOATS = np.dtype("<f8")

Address = tuple[str, int]


class Kind(IntEnum):
    """Kind of a datagram. The first four come from the controller."""

    __hash__ = int.__hash__  # an enum's own hash is a function in Python

    HELLO = 1
    COMMAND = 2
    MARK = 3
    BYE = 4
    WELCOME = 11
    REFUSE = 12
    STATE = 13
    REPORT = 14


FROM_CONTROLLER = frozenset({Kind.HELLO, Kind.COMMAND, Kind.MARK, Kind.BYE})
FROM_ROBOT = frozenset({Kind.WELCOME, Kind.REFUSE, Kind.STATE, Kind.REPORT})


class DatagramError(ValueError):
    """Refusal of a datagram; its text is one of a fixed set of reasons."""


class Packet(NamedTuple):
    """An undamaged datagram; `Link` decides whether it is accepted."""

    kind: Kind
    session: int
    joints: int
    """Checksum of the joint names in their order: `joints_checksum`."""
    sequence: int
    stamp_s: float
    payload: bytes


def encode(packet: Packet) -> bytes:
    """Return the datagram of a packet."""
    head = _HEADER.pack(
        MAGIC, VERSION, packet.kind, len(packet.payload), packet.session, packet.joints, packet.sequence, packet.stamp_s
    )
    body = head + packet.payload
    return body + _CRC.pack(zlib.crc32(body))


def decode(data: bytes) -> Packet:
    """Return the packet of a datagram; raise `DatagramError` if it is invalid."""
    if not _HEADER.size + _CRC.size <= len(data) <= MAX_DATAGRAM:
        raise DatagramError("length")
    magic, version, kind, length, session, joints, sequence, stamp_s = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise DatagramError("magic")
    if version != VERSION:
        raise DatagramError("version")
    if len(data) != _HEADER.size + length + _CRC.size:
        raise DatagramError("length")
    if _CRC.unpack_from(data, len(data) - _CRC.size)[0] != zlib.crc32(data[: -_CRC.size]):
        raise DatagramError("checksum")
    if kind not in _KINDS:
        raise DatagramError("kind")
    return Packet(_KINDS[kind], session, joints, sequence, stamp_s, bytes(data[_HEADER.size : -_CRC.size]))


_KINDS = {int(kind): kind for kind in Kind}


# -- payloads ----------------------------------------------------------------------------------------------------------


def joints_checksum(joints: Sequence[str]) -> int:
    """Return a checksum of the names and their order."""
    return zlib.crc32("\n".join(joints).encode())


def pack_names(joints: Sequence[str]) -> bytes:
    """Return the payload of HELLO and WELCOME: joint names in order."""
    return "\n".join(joints).encode()


def unpack_names(payload: bytes) -> tuple[str, ...]:
    """Read `pack_names`; raise `DatagramError` unless the names are valid, unique and not too many."""
    try:
        names = tuple(payload.decode().split("\n")) if payload else ()
    except UnicodeDecodeError:
        raise DatagramError("joint names") from None
    if (
        len(names) > MAX_JOINTS
        or len(set(names)) != len(names)
        or not all(name.isprintable() and name for name in names)
    ):
        raise DatagramError("joint names")
    return names


def pack_state(state: State, echo_s: float) -> bytes:
    """Return the payload of STATE; sequence and stamp are in the header.

    `echo_s` is the stamp of the newest received command plus the time for which the robot has held it.
    """
    return np.concatenate((*state.parts, (echo_s,))).astype(_FLOATS, copy=False).tobytes()


def unpack_state(packet: Packet, num_joints: int, received_s: float) -> tuple[State, float]:
    """Read `pack_state`. Values may be NaN or absurd; `StateCheck` refuses them."""
    values = _floats(packet.payload, 3 * num_joints + BODY + 1)
    joints = values[: 3 * num_joints].reshape(3, num_joints)
    state = State(packet.sequence, packet.stamp_s, received_s, *joints, *split_body(values[:-1]))
    return state, float(values[-1])


def pack_command(command: Command) -> bytes:
    """Return the payload of COMMAND: the command's parts, concatenated."""
    return np.concatenate(command.parts).astype(_FLOATS, copy=False).tobytes()


def unpack_command(packet: Packet, num_joints: int) -> Command:
    """Read `pack_command`; raise `DatagramError` if a value is NaN or absurd, or a gain negative."""
    values = _floats(packet.payload, len(COMMAND) * num_joints).reshape(-1, num_joints)
    if not (np.abs(values) < MAX_VALUE).all() or (values[2:4] < 0).any():
        raise DatagramError("values")
    return Command(*values)


def _floats(payload: bytes, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if len(payload) != 8 * count:
        raise DatagramError("payload length")
    return np.frombuffer(payload, _FLOATS).astype(FLOAT64)


# -- the link ----------------------------------------------------------------------------------------------------------


class Link:
    """One end of a link: it numbers the datagrams it sends, and accepts only those of its session."""

    def __init__(self, sock: socket.socket, takes: Collection[Kind]) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._takes = frozenset(takes)
        self.peer: Address | None = None
        self.session = 0
        self.joints = 0
        self._sent: Counter[Kind] = Counter()
        self._last: dict[Kind, int] = {}
        self._before: dict[Kind, int] = {}
        """The value of `_last` before the newest packet."""
        self.refused: Counter[str] = Counter()
        """Reason -> number of refused datagrams."""

    @property
    def address(self) -> Address:
        """Address of this end."""
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    def open(self, peer: Address, session: int, joints: Sequence[str] = ()) -> None:
        """Begin a session with this peer; all sequence numbers restart."""
        self.peer, self.session = peer, session
        self.agree(joints)
        self._sent.clear()
        self._last.clear()
        self._before.clear()

    def agree(self, joints: Sequence[str]) -> None:
        """Agree on the joints of commands and states, in the robot's order."""
        self.joints = joints_checksum(joints) if joints else 0

    def send(self, kind: Kind, payload: bytes, stamp_s: float) -> bytes:
        """Send the next datagram and return it. With a full buffer or a dead peer it is lost, as in a network."""
        data = self.number(kind, payload, stamp_s)
        if self.peer is not None:
            self.transmit(data, self.peer)
        return data

    def number(self, kind: Kind, payload: bytes, stamp_s: float) -> bytes:
        """Return the next datagram of this kind, without sending it."""
        self._sent[kind] += 1
        return encode(Packet(kind, self.session, self.joints, self._sent[kind], stamp_s, payload))

    def transmit(self, data: bytes, address: Address) -> None:
        """Send a datagram made by `number`."""
        try:
            self._socket.sendto(data, address)
        except OSError:  # ConnectionRefused (no listener), BlockingIOError (buffer full), unreachable
            self.refused["not sent"] += 1

    def datagrams(self) -> Iterator[tuple[bytes, Address]]:
        """Yield the datagrams that wait in the socket, at most `MAX_WAITING`; never block."""
        for _ in range(MAX_WAITING):
            try:
                data, address = self._socket.recvfrom(MAX_DATAGRAM + 1)
            except BlockingIOError:
                return
            except OSError:  # on a connected socket a dead peer shows up here
                continue
            yield data, address

    def accept(self, data: bytes, address: Address) -> Packet | None:
        """Return the packet if it is accepted. A HELLO is accepted from any address; the robot chooses its answer."""
        try:
            packet = decode(data)
            self._check(packet, address)
        except DatagramError as reason:
            self.refused[str(reason)] += 1
            return None
        if packet.kind is not Kind.HELLO:
            self._before[packet.kind] = self._last.get(packet.kind, 0)
            self._last[packet.kind] = packet.sequence
        return packet

    def reject(self, packet: Packet, reason: DatagramError) -> None:
        """Refuse an accepted packet with an invalid payload, so that its number does not block later ones."""
        self.refused[str(reason)] += 1
        if self._last.get(packet.kind) == packet.sequence:
            self._last[packet.kind] = self._before[packet.kind]

    def receive(self) -> Iterator[Packet]:
        """Yield every accepted packet that waits in the socket; never block."""
        for data, address in self.datagrams():
            packet = self.accept(data, address)
            if packet is not None:
                yield packet

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _check(self, packet: Packet, address: Address) -> None:
        if packet.kind not in self._takes:
            raise DatagramError("direction")
        if packet.kind is Kind.HELLO:
            return
        if address != self.peer:
            raise DatagramError("peer")
        if packet.session != self.session:
            raise DatagramError("session")
        if packet.kind in (Kind.COMMAND, Kind.STATE) and packet.joints != self.joints:
            raise DatagramError("joints")
        if not 0 < packet.sequence - self._last.get(packet.kind, 0) <= MAX_AHEAD:
            raise DatagramError("sequence")
