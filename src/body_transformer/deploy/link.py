"""Datagrams between a controller and a robot. Every datagram has one fixed binary layout, little-endian:

    magic "BoTL" | version u8 | kind u8 | payload length u16 | session 16 bytes | joints u32 | sequence u64 | stamp f64
    payload (a fixed number of f64 for a given number of joints; names and reasons are UTF-8)
    keyed BLAKE2b digest of everything before it, 16 bytes

Controller and robot share a secret key (`key.py`). A session starts with random numbers of both sides:

    controller                               robot
    HELLO      its number, as the session ->
                                          <- CHALLENGE  a number for this session, address and attempt
    OPEN       the joints that it expects ->
                                          <- WELCOME    the robot's joints in its order, or REFUSE with the reason

The digests of HELLO, CHALLENGE and REFUSE depend on the key. Those of all others also depend on both numbers, so a
datagram of an earlier session, or of an attempt that was answered, is refused. The two directions have different
digests. A robot starts a session only at OPEN. From then on each side accepts a datagram only

- from the other side's address, with the session's number and digest,
- with the checksum of the agreed joint names, if it is a command or a state,
- with a sequence number above the last one of its kind, by at most `MAX_AHEAD`.

Other datagrams are ignored and counted. Received data is never executed or unpickled. Nothing is encrypted: a program
on the way can read, delay and drop datagrams.
"""

from __future__ import annotations

import secrets
import socket
import struct
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple

from .key import DIGEST_BYTES, Digest

MAGIC = b"BoTL"
VERSION = 3
"""Version 1 had no linear velocity in states, version 2 no key."""
NONCE_BYTES = 16
"""Length of the random number of a side."""
MAX_DATAGRAM = 4096
"""Bytes; the longest COMMAND, for 64 joints, has 2620."""
MAX_WAITING = 512
"""Largest number of datagrams per read. A flood cannot block the loop, and one read takes all states that the kernel
buffered during a pause."""
MAX_AHEAD = 2**24
"""Largest step of a sequence number, hours of measurements. After a larger one, every valid datagram would be old."""

_HEADER = struct.Struct(f"<4sBBH{NONCE_BYTES}sIQd")
_VERSION_2 = struct.Struct("<4sBBHIIQd")
"""The header of version 2, which ended with a CRC-32."""

Address = tuple[str, int]


class Kind(IntEnum):
    """Kind of a datagram. Those below 10 come from the controller."""

    __hash__ = int.__hash__  # an enum's own hash is a function in Python

    HELLO = 1
    COMMAND = 2
    MARK = 3
    BYE = 4
    OPEN = 5
    WELCOME = 11
    REFUSE = 12
    STATE = 13
    REPORT = 14
    CHALLENGE = 15


FROM_CONTROLLER = frozenset(kind for kind in Kind if kind < 10)
FROM_ROBOT = frozenset(Kind) - FROM_CONTROLLER
_GREETINGS = frozenset({Kind.HELLO, Kind.CHALLENGE, Kind.REFUSE})
"""Kinds whose digest depends on the key alone."""


class DatagramError(ValueError):
    """Refusal of a datagram; its text is one of a fixed set of reasons."""


class Packet(NamedTuple):
    """An undamaged datagram; `Link` decides whether it is accepted."""

    kind: Kind
    session: bytes
    """The controller's random number."""
    joints: int
    """Checksum of the joint names in their order: `joints_checksum`."""
    sequence: int
    stamp_s: float
    payload: bytes


def encode(packet: Packet, digest: Digest) -> bytes:
    """Return the datagram of a packet."""
    head = _HEADER.pack(
        MAGIC, VERSION, packet.kind, len(packet.payload), packet.session, packet.joints, packet.sequence, packet.stamp_s
    )
    body = head + packet.payload
    return body + digest(body)


def decode(data: bytes) -> Packet:
    """Return the packet of a datagram, whose digest is not checked; raise `DatagramError` if it is invalid."""
    if not _HEADER.size + DIGEST_BYTES <= len(data) <= MAX_DATAGRAM:
        raise DatagramError("length")
    magic, version, kind, length, session, joints, sequence, stamp_s = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise DatagramError("magic")
    if version != VERSION:
        raise DatagramError("version")
    if len(data) != _HEADER.size + length + DIGEST_BYTES:
        raise DatagramError("length")
    if kind not in _KINDS:
        raise DatagramError("kind")
    return Packet(_KINDS[kind], session, joints, sequence, stamp_s, bytes(data[_HEADER.size : -DIGEST_BYTES]))


def answer_to_version_2(data: bytes) -> bytes | None:
    """Return a refusal that a controller of version 2 can read, if this is its HELLO."""
    if len(data) < _VERSION_2.size + 4 or data[:6] != MAGIC + bytes((2, Kind.HELLO)):
        return None
    *_, session, _, sequence, stamp_s = _VERSION_2.unpack_from(data)
    reason = f"the robot uses version {VERSION} of the link, with a key; update this computer's body_transformer"
    head = _VERSION_2.pack(MAGIC, 2, Kind.REFUSE, len(reason), session, 0, sequence, stamp_s)
    body = head + reason.encode()
    return body + zlib.crc32(body).to_bytes(4, "little")


_KINDS = {int(kind): kind for kind in Kind}


def joints_checksum(joints: Sequence[str]) -> int:
    """Return a checksum of the names and their order."""
    return zlib.crc32("\n".join(joints).encode())


# -- the link ----------------------------------------------------------------------------------------------------------


class Link:
    """One end of a link: it numbers the datagrams it sends, and accepts only those of its session."""

    def __init__(self, sock: socket.socket, takes: Collection[Kind], key: bytes) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._takes = frozenset(takes)
        self._key = key
        self._side, self._other = ("robot", "host") if Kind.HELLO in self._takes else ("host", "robot")
        self._greet_out, self._greet_in = (Digest(key, f"{side} greets") for side in (self._side, self._other))
        self._attempt = secrets.token_bytes(NONCE_BYTES)
        self.peer: Address | None = None
        self.session = bytes(NONCE_BYTES)
        self.nonce = b""
        """The robot's number of the session."""
        self.joints = 0
        self._sent: Counter[Kind] = Counter()
        self._last: dict[Kind, int] = {}
        self._before: dict[Kind, int] = {}
        """The value of `_last` before the newest packet."""
        self.refused: Counter[str] = Counter()
        """Reason -> number of refused datagrams."""
        self.agree_nonce(secrets.token_bytes(NONCE_BYTES))  # nothing fits before a session

    @property
    def address(self) -> Address:
        """Address of this end."""
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    def open(self, peer: Address, session: bytes, nonce: bytes = b"", joints: Sequence[str] = ()) -> None:
        """Begin a session with this peer; all sequence numbers restart. A controller learns the nonce later."""
        self.peer, self.session = peer, session
        self.agree_nonce(nonce or secrets.token_bytes(NONCE_BYTES))
        self.agree(joints)
        self._sent.clear()
        self._last.clear()
        self._before.clear()

    def agree_nonce(self, nonce: bytes) -> None:
        """Agree on the robot's number, on which the digests of the session depend."""
        self.nonce = nonce
        self._out, self._in = (self._talk(side, self.session, nonce) for side in (self._side, self._other))

    def agree(self, joints: Sequence[str]) -> None:
        """Agree on the joints of commands and states, in the robot's order."""
        self.joints = joints_checksum(joints) if joints else 0

    # -- the robot's part of the start of a session ------------------------------------------------------------------

    def challenge(self, session: bytes, address: Address) -> bytes:
        """Return the robot's number for a controller: that of its session, or of the next attempt to open one."""
        if (address, session) == (self.peer, self.session):
            return self.nonce
        return blake2b(repr(address).encode(), key=self._attempt, digest_size=NONCE_BYTES).digest()

    def next_attempt(self) -> None:
        """Make all answers to earlier challenges invalid, because one of them was used."""
        self._attempt = secrets.token_bytes(NONCE_BYTES)

    def answer(self, greeting: Packet, kind: Kind, payload: bytes, stamp_s: float) -> bytes:
        """Return a CHALLENGE or REFUSE for a controller that has no session."""
        return encode(Packet(kind, greeting.session, 0, greeting.sequence, stamp_s, payload), self._greet_out)

    # -- sending and receiving -----------------------------------------------------------------------------------------

    def send(self, kind: Kind, payload: bytes, stamp_s: float) -> bytes:
        """Send the next datagram and return it. With a full buffer or a dead peer it is lost, as in a network."""
        data = self.number(kind, payload, stamp_s)
        if self.peer is not None:
            self.transmit(data, self.peer)
        return data

    def number(self, kind: Kind, payload: bytes, stamp_s: float) -> bytes:
        """Return the next datagram of this kind, without sending it."""
        self._sent[kind] += 1
        digest = self._greet_out if kind in _GREETINGS else self._out
        return encode(Packet(kind, self.session, self.joints, self._sent[kind], stamp_s, payload), digest)

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
        """Return the packet if it is accepted. HELLO and OPEN are from any address; the robot chooses its answer."""
        try:
            packet = decode(data)
            is_of_session = self._check(packet, data, address)
        except DatagramError as reason:
            self.refused[str(reason)] += 1
            return None
        if is_of_session:
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

    def _check(self, packet: Packet, data: bytes, address: Address) -> bool:
        """Refuse a packet that is not for this end; return False for one that asks for a new session."""
        if packet.kind not in self._takes:
            raise DatagramError("direction")
        is_current = (address, packet.session) == (self.peer, self.session)
        if not self._digest_of(packet, address, is_current).fits(data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]):
            raise DatagramError("digest")
        if packet.kind is Kind.HELLO or (packet.kind is Kind.OPEN and not is_current):
            return False
        if address != self.peer:
            raise DatagramError("peer")
        if packet.session != self.session:
            raise DatagramError("session")
        if packet.kind in (Kind.COMMAND, Kind.STATE) and packet.joints != self.joints:
            raise DatagramError("joints")
        if not 0 < packet.sequence - self._last.get(packet.kind, 0) <= MAX_AHEAD:
            raise DatagramError("sequence")
        return True

    def _digest_of(self, packet: Packet, address: Address, is_current: bool) -> Digest:
        """Return the digest that a packet must have."""
        if packet.kind in _GREETINGS:
            return self._greet_in
        if packet.kind is Kind.OPEN and not is_current:
            return self._talk(self._other, packet.session, self.challenge(packet.session, address))
        return self._in

    def _talk(self, side: str, *nonces: bytes) -> Digest:
        """Return the digests of a side in the session with these numbers of both."""
        return Digest(self._key, f"{side} talks", *nonces)
