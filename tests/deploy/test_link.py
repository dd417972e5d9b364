"""Datagrams of the link: layout, acceptance, sockets."""

from itertools import product

import numpy as np
import pytest

from body_transformer.deploy.link import (
    MAX_AHEAD,
    MAX_WAITING,
    DatagramError,
    Kind,
    Packet,
    decode,
    encode,
)
from body_transformer.deploy.payloads import (
    pack_command,
    pack_names,
    pack_state,
    unpack_command,
    unpack_names,
    unpack_state,
)

from .datagrams import DIGEST, JOINTS, NONCE, command, packet, received, sealed, state, udp

OTHER = bytes([6]) * 16

# -- datagrams ---------------------------------------------------------------------------------------------------------


def test_the_layout_of_version_3_does_not_change():
    data = encode(Packet(Kind.COMMAND, bytes(range(1, 17)), 0x0A0B0C0D, 9, 1.5, b"xy"), DIGEST)
    body = "426f544c 03 02 0200 0102030405060708090a0b0c0d0e0f10 0d0c0b0a 0900000000000000 000000000000f83f 7879"
    assert data[:-16] == bytes.fromhex(body)
    assert data[-16:] == DIGEST(data[:-16])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: b"", "length"),
        (lambda data: data[:20], "length"),
        (lambda data: data[:-1], "length"),
        (lambda data: data + b"\0", "length"),
        (lambda data: data * 200, "length"),
        (lambda data: b"BoTX" + data[4:], "magic"),
        (lambda data: data[:4] + b"\x01" + data[5:], "version"),
        (lambda data: data[:4] + b"\x02" + data[5:], "version"),
        (lambda data: data[:5] + b"\x63" + data[6:], "kind"),
        (lambda data: data[:6] + b"\xff" + data[7:], "length"),
    ],
)
def test_a_damaged_datagram_is_refused_with_its_reason(change, reason):
    with pytest.raises(DatagramError, match=f"^{reason}$"):
        decode(change(encode(packet(payload=pack_command(command())), DIGEST)))


def test_every_flipped_bit_is_noticed(ends):
    robot, controller = ends
    data = sealed(packet(payload=pack_command(command())), controller)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert robot.accept(bytes(flipped), controller.address) is None
    assert robot.refused["digest"] > 8 * (len(data) - 10)
    assert robot.accept(data, controller.address) is not None


# -- payloads ----------------------------------------------------------------------------------------------------------


def test_a_state_survives_packing_bit_for_bit():
    sent = state()
    payload = pack_state(sent, echo_s=3.25)
    got, echo_s = unpack_state(packet(Kind.STATE, sequence=7, payload=payload), 2, received_s=99.0)
    assert echo_s == 3.25
    assert (got.sequence, got.stamp_s, got.received_s) == (7, 1.25, 99.0)
    for ours, theirs in zip(got.parts, sent.parts, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_command_survives_packing_bit_for_bit():
    sent = command(1 / 3)
    got = unpack_command(packet(payload=pack_command(sent)), 2)
    np.testing.assert_array_equal(got.parts, sent.parts)


@pytest.mark.parametrize(
    ("name", "value"),
    [*product(("position", "velocity", "kp", "kd", "torque"), (np.nan, np.inf, -np.inf, 1e7)), ("kp", -1), ("kd", -1)],
)
def test_a_command_with_nan_absurd_values_or_a_negative_gain_is_refused(name, value):
    bad = command()
    getattr(bad, name)[1] = value
    with pytest.raises(DatagramError, match="values"):
        unpack_command(packet(payload=pack_command(bad)), 2)


@pytest.mark.parametrize("payload", [b"", b"x" * 79, pack_command(command(num_joints=3))])
def test_a_payload_for_other_joints_is_refused(payload):
    with pytest.raises(DatagramError, match="payload length"):
        unpack_command(packet(payload=payload), 2)
    with pytest.raises(DatagramError, match="payload length"):
        unpack_state(packet(Kind.STATE, payload=payload), 2, 0.0)


def test_joint_names_survive_packing_in_their_order():
    assert unpack_names(pack_names(("b", "a", "Ä"))) == ("b", "a", "Ä")
    assert unpack_names(b"") == ()


@pytest.mark.parametrize("payload", [b"a\na", b"a\n", b"\xff\xfe", b"a\x00b", b"\n".join(b"%d" % i for i in range(65))])
def test_invalid_names_are_refused(payload):
    with pytest.raises(DatagramError, match="joint names"):
        unpack_names(payload)


# -- acceptance --------------------------------------------------------------------------------------------------------


def test_packets_go_both_ways_and_each_kind_has_its_own_numbers(ends):
    robot, controller = ends
    controller.send(Kind.COMMAND, b"c", 1.0)
    assert [(p.kind, p.payload, p.sequence) for p in received(robot)] == [(Kind.COMMAND, b"c", 1)]
    for _ in range(3):
        robot.send(Kind.STATE, b"s", 2.0)
        robot.send(Kind.REPORT, b"", 2.0)
    states = [(p.payload, p.sequence) for p in received(controller) if p.kind is Kind.STATE]
    assert states == [(b"s", 1), (b"s", 2), (b"s", 3)]


@pytest.mark.parametrize(
    ("stranger", "reason"),
    [
        ({"session": bytes(16)}, "session"),
        ({"joints": ("knee", "hip")}, "joints"),
        ({"sequence": 0}, "sequence"),
        ({"kind": Kind.STATE}, "direction"),
        ({"kind": Kind.WELCOME}, "direction"),
        ({"kind": Kind.OPEN, "session": bytes(16)}, "digest"),
    ],
)
def test_packets_of_another_session_are_refused(ends, stranger, reason):
    robot, controller = ends
    assert robot.accept(sealed(packet(**stranger), controller), controller.address) is None
    assert robot.refused == {reason: 1}
    assert robot.accept(sealed(packet(), controller), controller.address) is not None


def test_another_address_is_not_the_peer(ends):
    robot, controller = ends
    host, port = controller.address
    assert robot.accept(sealed(packet(), controller), (host, port + 1)) is None
    assert robot.accept(sealed(packet(), controller), ("127.0.0.2", port)) is None
    assert robot.refused == {"peer": 2}


def test_old_and_repeated_datagrams_are_ignored(ends):
    robot, controller = ends
    datagrams = {n: sealed(packet(sequence=n), controller) for n in range(1, 6)}
    came = [robot.accept(datagrams[n], controller.address) for n in (1, 1, 3, 2, 3, 5, 4, 1)]
    assert [p.sequence for p in came if p] == [1, 3, 5]
    assert robot.refused == {"sequence": 5}


def test_a_new_session_restarts_the_sequence_numbers(ends):
    robot, controller = ends
    assert robot.accept(sealed(packet(sequence=100), controller), controller.address)
    robot.open(controller.address, OTHER, NONCE, JOINTS)
    assert robot.accept(sealed(packet(sequence=101), controller), controller.address) is None
    controller.open(robot.address, OTHER, NONCE, JOINTS)
    assert robot.accept(sealed(packet(sequence=1, session=OTHER), controller), controller.address)


def test_a_rejected_datagram_does_not_block_those_that_follow(ends):
    """The datagram is undamaged and of the session, but its payload is invalid and its number far ahead."""
    robot, controller = ends
    nonsense = robot.accept(sealed(packet(sequence=1000, payload=b"?"), controller), controller.address)
    with pytest.raises(DatagramError) as reason:
        unpack_command(nonsense, 2)
    robot.reject(nonsense, reason.value)
    assert robot.refused == {"payload length": 1}
    assert robot.accept(sealed(packet(sequence=1), controller), controller.address) is not None
    assert robot.accept(sealed(packet(sequence=1), controller), controller.address) is None


def test_a_number_that_no_session_reaches_is_refused(ends):
    robot, controller = ends
    for sequence in (MAX_AHEAD + 1, 2**63, 2**64 - 1):
        assert robot.accept(sealed(packet(sequence=sequence), controller), controller.address) is None
    assert robot.refused == {"sequence": 3}
    assert robot.accept(sealed(packet(sequence=MAX_AHEAD), controller), controller.address) is not None
    assert robot.accept(sealed(packet(sequence=MAX_AHEAD + 1), controller), controller.address) is not None


# -- sockets -----------------------------------------------------------------------------------------------------------


def test_a_dead_peer_raises_nothing(ends):
    robot, controller = ends
    controller._socket.connect(robot.address)
    robot._socket.close()
    controller.send(Kind.COMMAND, b"", 0.0)
    assert received(controller) == []  # the kernel reports that there is no listener
    controller.send(Kind.COMMAND, b"", 0.0)
    controller.send(Kind.COMMAND, b"", 0.0)  # or here
    assert controller.refused == {"not sent": 1}


def test_a_flood_cannot_block_the_loop(ends):
    robot, _ = ends
    with udp() as stranger:
        for _ in range(2 * MAX_WAITING):
            stranger.sendto(b"x", robot.address)
        assert len(list(robot.datagrams())) <= MAX_WAITING
