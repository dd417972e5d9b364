"""Payloads of the link's datagrams: joint names, states and commands, as bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .link import DatagramError, Packet
from .robot import BODY, COMMAND, FLOAT64, Command, State, split_body

MAX_JOINTS = 64
MAX_VALUE = 1e6
"""Largest value in a command; more is invalid, and its products could overflow."""
_FLOATS = np.dtype("<f8")


def pack_names(joints: Sequence[str]) -> bytes:
    """Return the payload of OPEN and WELCOME: joint names in order."""
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
