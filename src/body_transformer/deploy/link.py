"""Datagrams between a controller and a robot.

Every datagram has one fixed binary layout, little-endian:

    magic "BoTL" | version u8 | kind u8 | payload length u16 | session u32 | joints u32 | sequence u64 | stamp f64
    payload (a fixed number of f64 for a given number of joints; names and reasons are UTF-8)
    CRC-32 of everything before it, u32

A session starts with the controller's HELLO (the joint names it expects, or none) and the robot's WELCOME (its joint
names, in its order) or REFUSE (the reason). From then on each side takes datagrams only from the other's address, with
this session's number, with the checksum of the agreed joint names, and with a sequence number above the last one of
that kind (and not absurdly far): old and repeated datagrams are ignored, and what makes no sense leaves no trace but
its count. Nothing that arrives is ever executed or unpickled.

The CRC finds damage, not malice: who can write to the controller's own socket can command the robot. Keep the link on
the loopback interface or on a cable of its own.
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

from .robot import COMMAND, FLOAT64, Command, State

MAGIC = b"BoTL"
VERSION = 1
MAX_JOINTS = 64
MAX_DATAGRAM = 4096
"""Bytes; the longest COMMAND (64 joints) has 2596."""
MAX_VALUE = 1e6
"""Of anything in a command: more is nonsense, and its products could overflow."""
MAX_WAITING = 512
"""Datagrams taken from the socket at once: a flood cannot hold the loop, and the states of a pause, which the kernel
keeps oldest first, are all gone after one look."""
MAX_AHEAD = 2**24
"""That a sequence number may be ahead of the last: hours of measurements. Beyond it is nonsense, after which nothing
else would be new."""

_HEADER = struct.Struct("<4sBBHIIQd")
_CRC = struct.Struct("<I")
_FLOATS = np.dtype("<f8")

Address = tuple[str, int]


class Kind(IntEnum):
    """What a datagram says. The first four come from the controller."""

    __hash__ = int.__hash__  # an enum's own is a function in Python

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
    """A datagram that is not ours; its text is the reason, of a small number of reasons."""


class Packet(NamedTuple):
    """A datagram that is whole; whether it is welcome is the `Link`'s business."""

    kind: Kind
    session: int
    joints: int
    """Checksum of the joint names in their order, see `joints_checksum`."""
    sequence: int
    stamp_s: float
    payload: bytes


def encode(packet: Packet) -> bytes:
    """The datagram of a packet."""
    head = _HEADER.pack(
        MAGIC,
        VERSION,
        packet.kind,
        len(packet.payload),
        packet.session,
        packet.joints,
        packet.sequence,
        packet.stamp_s,
    )
    body = head + packet.payload
    return body + _CRC.pack(zlib.crc32(body))


def decode(data: bytes) -> Packet:
    """The packet of a datagram; `DatagramError` if it is none."""
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


def _number_of(datagram: tuple[bytes, Address]) -> int:
    """What stands where the sequence number stands, if it is a datagram of ours at all."""
    data = datagram[0]
    return int(_HEADER.unpack_from(data)[6]) if len(data) >= _HEADER.size else -1


# -- payloads ----------------------------------------------------------------------------------------------------------


def joints_checksum(joints: Sequence[str]) -> int:
    """Differs for other names and for another order."""
    return zlib.crc32("\n".join(joints).encode())


def pack_names(joints: Sequence[str]) -> bytes:
    """Joint names in order, as HELLO and WELCOME carry them."""
    return "\n".join(joints).encode()


def unpack_names(payload: bytes) -> tuple[str, ...]:
    """The reverse of `pack_names`; `DatagramError` unless they are names, each once, and not too many."""
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
    """All but sequence and stamp, which the header has; `echo_s` is the stamp of the newest command that came, plus the
    time since then: so much of a round trip is not the link's."""
    return np.concatenate((*state.parts, (echo_s,))).astype(_FLOATS, copy=False).tobytes()


def unpack_state(packet: Packet, num_joints: int, received_s: float) -> tuple[State, float]:
    """The reverse of `pack_state`. Values may be NaN or absurd: to notice that is the safety layer's business."""
    values = _floats(packet.payload, 3 * num_joints + 8)
    j = num_joints
    state = State(
        packet.sequence,
        packet.stamp_s,
        received_s,
        joint_pos=values[:j],
        joint_vel=values[j : 2 * j],
        joint_torque=values[2 * j : 3 * j],
        angular_velocity=values[3 * j : 3 * j + 3],
        quaternion=values[3 * j + 3 : 3 * j + 7],
    )
    return state, float(values[-1])


def pack_command(command: Command) -> bytes:
    """Its parts, one after the other."""
    return np.concatenate(command.parts).astype(_FLOATS, copy=False).tobytes()


def unpack_command(packet: Packet, num_joints: int) -> Command:
    """The reverse of `pack_command`; `DatagramError` if a value is NaN or absurd, or a gain negative."""
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
    """One end: numbers what it sends, and lets in only what belongs to its session."""

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
        """What `_last` was before that."""
        self.refused: Counter[str] = Counter()
        """Reason -> how many datagrams were not let in."""

    @property
    def address(self) -> Address:
        """Where this end listens."""
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    def open(self, peer: Address, session: int, joints: Sequence[str] = ()) -> None:
        """From now on only this peer and this session count; all sequence numbers start anew."""
        self.peer, self.session = peer, session
        self.agree(joints)
        self._sent.clear()
        self._last.clear()
        self._before.clear()

    def agree(self, joints: Sequence[str]) -> None:
        """The joints, in the robot's order, that commands and states are about from now on."""
        self.joints = joints_checksum(joints) if joints else 0

    def send(self, kind: Kind, payload: bytes, stamp_s: float) -> bytes:
        """Numbers and sends a datagram; returns it. A full buffer or a dead peer loses it, as a network would."""
        data = self.number(kind, payload, stamp_s)
        if self.peer is not None:
            self.transmit(data, self.peer)
        return data

    def number(self, kind: Kind, payload: bytes, stamp_s: float) -> bytes:
        """The next datagram of this kind, not sent."""
        self._sent[kind] += 1
        return encode(Packet(kind, self.session, self.joints, self._sent[kind], stamp_s, payload))

    def transmit(self, data: bytes, address: Address) -> None:
        """Sends what `number` made."""
        try:
            self._socket.sendto(data, address)
        except OSError:  # ConnectionRefused (nobody there), BlockingIOError (buffer full), unreachable
            self.refused["not sent"] += 1

    def datagrams(self) -> Iterator[tuple[bytes, Address]]:
        """What waits in the socket, unread, at most `MAX_WAITING`; never blocks."""
        for _ in range(MAX_WAITING):
            try:
                data, address = self._socket.recvfrom(MAX_DATAGRAM + 1)
            except BlockingIOError:
                return
            except OSError:  # on a connected socket a dead peer shows up here
                continue
            yield data, address

    def accept(self, data: bytes, address: Address) -> Packet | None:
        """The packet, if it may come in. A HELLO may come from anyone; whether it is answered is the robot's choice."""
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
        """For who unpacks what was let in: it made no sense, and its number does not hold up those that follow."""
        self.refused[str(reason)] += 1
        if self._last.get(packet.kind) == packet.sequence:
            self._last[packet.kind] = self._before[packet.kind]

    def receive(self) -> Iterator[Packet]:
        """Every welcome packet that waits in the socket; never blocks."""
        for data, address in self.datagrams():
            packet = self.accept(data, address)
            if packet is not None:
                yield packet

    def newest(self, kind: Kind) -> Packet | None:
        """Of the welcome packets of this kind that wait in the socket, that with the highest number; never blocks.

        What waits behind it is dropped unread: a robot may send many states to one look at them.
        """
        waiting = list(self.datagrams())
        if len(waiting) > 1:
            waiting.sort(key=_number_of, reverse=True)
        for data, address in waiting:
            packet = self.accept(data, address)
            if packet is not None and packet.kind is kind:
                return packet
        return None

    def close(self) -> None:
        """Closes the socket."""
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
