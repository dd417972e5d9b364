"""Datagrams and sockets for the tests of the link."""

import socket
import time

import numpy as np

from body_transformer.deploy.key import Digest
from body_transformer.deploy.link import Kind, Link, Packet, encode, joints_checksum
from body_transformer.deploy.robot import Command, State

JOINTS = ("hip", "knee")
KEY = bytes(range(32))
SESSION, NONCE = bytes([5]) * 16, bytes([9]) * 16
"""The random numbers of the controller and of the robot."""
DIGEST = Digest(KEY, "test")
GREETINGS = (Kind.HELLO, Kind.CHALLENGE, Kind.REFUSE)


def command(value: float = 0.25, num_joints: int = 2) -> Command:
    values = np.full(num_joints, value)
    return Command(values, 2 * values, 100 * values, values, -values)


def state(num_joints: int = 2) -> State:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=size) for size in (num_joints, num_joints, num_joints, 3, 4, 3)]
    return State(7, 1.5, 99.0, *arrays)


def packet(kind=Kind.COMMAND, session=SESSION, sequence=1, payload=b"", joints=JOINTS) -> Packet:
    return Packet(kind, session, joints_checksum(joints), sequence, 1.25, payload)


def udp() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    return sock


def received(link: Link) -> list[Packet]:
    time.sleep(0.002)
    return list(link.receive())


def sealed(packet: Packet, sender: Link) -> bytes:
    """Return the datagram of any packet, with the digest of this sender."""
    return encode(packet, sender._greet_out if packet.kind in GREETINGS else sender._out)


def malformed(rng: np.random.Generator, valid: bytes) -> bytes:
    """Return random bytes, or a valid datagram that is cut, longer, or has other bits, another version or digest."""
    data = bytearray(valid)
    way = rng.integers(7)
    if way == 0:
        return rng.bytes(int(rng.integers(0, 200)))
    if way == 1:
        return bytes(data[: int(rng.integers(0, len(data)))])
    if way == 2:
        return bytes(data) + rng.bytes(int(rng.integers(1, 50)))
    if way == 3:  # an odd number of flips, so that none undoes another
        for bit in rng.choice(8 * len(data), size=int(rng.choice([1, 3, 9, 33])), replace=False):
            data[bit // 8] ^= 1 << int(bit) % 8
        return bytes(data)
    if way == 4:
        data[4] = int(rng.choice([0, 1, 2, 255]))
        return bytes(data)
    if way == 5:
        return bytes(data[:-16]) + rng.bytes(16)
    start = int(rng.integers(0, len(data) - 8))
    data[start : start + 8] = rng.bytes(8)
    return bytes(data)
