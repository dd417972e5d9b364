"""What another user of the computer, without the key, can do to a robot: nothing. All datagrams go through sockets."""

import json
import socket
import zlib
from contextlib import ExitStack

import numpy as np
import pytest

from body_transformer.deploy.link import FROM_ROBOT, Address, Kind, Link, decode
from body_transformer.deploy.payloads import pack_command, pack_names
from body_transformer.deploy.robot import Command
from body_transformer.deploy.robots.sim_options import SimOptions
from body_transformer.deploy.robots.sim_process import SILENT_PEER_S, SimProcess

from .datagrams import KEY, udp

WRONG_KEY = bytes(32)
SILENT_TICKS = round(SILENT_PEER_S * SimOptions().state_hz) + 10


class Sniffed(Link):
    """A controller's end of the link; every datagram that it sends and receives is recorded."""

    def __init__(self, key: bytes, session: int, robot: Address) -> None:
        super().__init__(udp(), FROM_ROBOT, key)
        self.sent: list[bytes] = []
        self.came: list[bytes] = []
        self.open(robot, bytes([session]) * 16)

    def transmit(self, data: bytes, address: Address) -> None:
        self.sent.append(data)
        super().transmit(data, address)

    def accept(self, data: bytes, address: Address):
        self.came.append(data)
        return super().accept(data, address)


class Room:
    """A robot, its user, and a stranger's socket."""

    def __init__(self) -> None:
        self.robot = SimProcess(SimOptions(), udp(), KEY)
        self.stranger = udp()
        self.stranger.setblocking(False)
        self.links: list[Link] = []

    def connect(self, session: int, key: bytes = KEY) -> Sniffed:
        """Return a controller after its greetings, whatever the robot answered."""
        link = Sniffed(key, session, self.robot.link.address)
        self.links.append(link)
        link.send(Kind.HELLO, b"", 0.0)
        for packet in self.ticks(3, link):
            if packet.kind is Kind.CHALLENGE:
                link.agree_nonce(packet.payload)
                link.send(Kind.OPEN, b"", 0.0)
        if any(packet.kind is Kind.WELCOME for packet in self.ticks(3, link)):
            link.agree(self.robot.body.joints)
        return link

    def ticks(self, count: int, link: Link) -> list:
        found = []
        for _ in range(count):
            self.robot.tick()
            found += link.receive()
        return found

    def send(self, data: bytes, sender: socket.socket | None = None) -> bytes | None:
        """Send a datagram, let the robot run, and return its answer to the stranger."""
        (sender or self.stranger).sendto(data, self.robot.link.address)
        for _ in range(3):
            self.robot.tick()
        try:
            return (sender or self.stranger).recv(5000)
        except BlockingIOError:
            return None

    def hold(self, offset: float = 0.0) -> bytes:
        zeros, ones = np.zeros(12), np.ones(12)
        return pack_command(Command(self.robot.body.start_joints + offset, zeros, 100 * ones, ones, zeros))

    def state(self) -> tuple:
        """Return what an attack must not change."""
        return self.robot.link.peer, self.robot.link.session, self.robot._session.commands, self.robot._session.bye_s


@pytest.fixture
def room():
    with ExitStack() as ends:
        made = Room()
        ends.callback(made.robot.link.close)
        ends.callback(made.stranger.close)
        ends.callback(lambda: [link.close() for link in made.links])
        yield made


def test_a_stranger_cannot_take_a_robot_that_waits(room):
    stranger = room.connect(1, WRONG_KEY)
    assert room.state() == (None, bytes(16), 0, None)
    assert stranger.came == []  # not even an answer
    assert room.robot.link.refused == {"digest": 1}
    assert room.connect(2).joints != 0  # the user can


def test_a_stranger_cannot_take_over_a_silent_session(room):
    user = room.connect(1)
    user.send(Kind.COMMAND, room.hold(), 0.0)
    room.ticks(SILENT_TICKS, user)
    before = room.state()
    assert before[:3] == (user.address, user.session, 1)
    room.connect(2, WRONG_KEY)
    assert room.state() == before
    assert room.robot.body.time_s > SILENT_PEER_S  # the session was not started again
    assert room.connect(3).joints != 0  # another controller with the key can


def test_a_stranger_who_knows_session_and_numbers_cannot_command(room):
    """All headers are readable; only the digest is missing."""
    user = room.connect(1)
    user.send(Kind.COMMAND, room.hold(), 0.0)
    room.ticks(3, user)
    before = room.state()
    forged = Link(udp(), FROM_ROBOT, WRONG_KEY)
    room.links.append(forged)
    forged.open(room.robot.link.address, user.session, user.nonce, room.robot.body.joints)
    for _ in range(5):
        forged.send(Kind.COMMAND, room.hold(0.5), 1.0)
        forged.send(Kind.BYE, b"", 1.0)
    room.ticks(3, user)
    assert room.state() == before
    np.testing.assert_array_equal(room.robot._session.command.position, room.robot.body.start_joints)


def record(room: Room, session: int = 1) -> Sniffed:
    """Return a controller after a whole session."""
    user = room.connect(session)
    for _ in range(5):
        user.send(Kind.COMMAND, room.hold(0.5), 0.0)
        user.send(Kind.MARK, b"begin", 0.0)
        room.ticks(2, user)
    user.send(Kind.BYE, b"", 0.0)
    room.ticks(2, user)
    return user


@pytest.mark.parametrize("from_its_socket", [False, True], ids=["from another socket", "from the same socket"])
def test_captured_datagrams_cannot_be_replayed_into_the_same_session(room, from_its_socket):
    user = room.connect(1)
    for _ in range(5):
        user.send(Kind.COMMAND, room.hold(0.5), 0.0)
        user.send(Kind.MARK, b"end", 0.0)
        room.ticks(2, user)
    user.send(Kind.COMMAND, room.hold(), 0.0)
    room.ticks(2, user)
    before = room.state()
    for data in list(user.sent)[1:]:  # the first is the HELLO
        room.send(data, user._socket if from_its_socket else None)
    assert room.state() == before
    np.testing.assert_array_equal(room.robot._session.command.position, room.robot.body.start_joints)


@pytest.mark.parametrize("from_its_socket", [False, True], ids=["from another socket", "from the same socket"])
def test_a_captured_session_cannot_be_replayed_when_it_is_over(room, from_its_socket):
    user = record(room)
    before, sender = room.state(), user._socket if from_its_socket else None
    kinds = [decode(data).kind for data in user.sent]
    assert set(kinds) == {Kind.HELLO, Kind.OPEN, Kind.COMMAND, Kind.MARK, Kind.BYE}
    for wait in (0, SILENT_TICKS):
        room.ticks(wait, user)
        for data in list(user.sent):
            room.send(data, sender)
        assert room.state() == before


def test_a_captured_session_cannot_be_replayed_into_a_new_one(room):
    """The robot answers a replayed HELLO with a new number, so the captured OPEN and all that follows do not fit."""
    first = record(room)
    second = room.connect(2)
    room.ticks(SILENT_TICKS, second)
    before = room.state()
    assert before[1] == second.session
    for data in list(first.sent):
        room.send(data)
    assert room.state() == before


def test_a_replayed_hello_opens_nothing(room):
    user = record(room)
    answer = decode(room.send(user.sent[0]))
    assert (answer.kind, answer.session) == (Kind.CHALLENGE, user.session)
    assert answer.payload != user.nonce
    assert room.robot.link.peer == user.address


def test_an_answer_to_a_challenge_fits_one_address_and_one_attempt(room):
    user = Sniffed(KEY, 1, room.robot.link.address)
    room.links.append(user)
    user.send(Kind.HELLO, b"", 0.0)
    (challenge,) = room.ticks(3, user)
    user.agree_nonce(challenge.payload)
    opening = user.number(Kind.OPEN, b"", 0.0)
    assert room.send(opening) is None  # captured on its way, and sent from another address
    assert room.state()[0] is None
    assert room.connect(2).joints != 0  # another controller was faster
    user.transmit(opening, room.robot.link.address)
    room.ticks(3, user)
    assert room.state()[1] == bytes([2]) * 16


def test_an_opening_that_was_refused_cannot_be_replayed_when_the_robot_is_free(room):
    first, second = room.connect(1), room.connect(2)
    assert second.joints == 0
    assert decode(second.sent[-1]).kind is Kind.OPEN
    room.ticks(SILENT_TICKS, first)
    before = room.state()
    room.send(second.sent[-1], second._socket)
    assert room.state() == before


def test_a_stranger_cannot_answer_in_the_robots_place(room):
    """States, welcomes and reports of another sender, of another session, or sent back to their sender are refused."""
    user = record(room)
    late = room.connect(2)
    late.refused.clear()
    for data in [data for data in user.came if decode(data).kind is not Kind.CHALLENGE]:
        assert late.accept(data, room.robot.link.address) is None
    own = [data for data in late.sent if decode(data).kind is not Kind.HELLO]
    for data in own:
        assert late.accept(data, room.robot.link.address) is None
    assert set(late.refused) == {"digest", "direction"}


def test_the_directions_have_different_digests(room):
    """A datagram of the controller, marked as the robot's, does not fit."""
    user = room.connect(1)
    sent = bytearray(user.number(Kind.MARK, b"end", 0.0))
    sent[5] = Kind.REPORT
    assert user.accept(bytes(sent), room.robot.link.address) is None
    assert user.refused["digest"] == 1


def test_a_controller_of_version_2_is_refused_with_a_sentence(room):
    names = pack_names(room.robot.body.joints)
    head = b"BoTL" + bytes([2, 1]) + len(names).to_bytes(2, "little") + (7).to_bytes(4, "little") + bytes(4)
    hello = head + (1).to_bytes(8, "little") + bytes(8) + names
    answer = room.send(hello + zlib.crc32(hello).to_bytes(4, "little"))
    assert answer[:6] == b"BoTL" + bytes([2, 12])
    assert answer[8:12] == (7).to_bytes(4, "little")
    assert int.from_bytes(answer[-4:], "little") == zlib.crc32(answer[:-4])
    said = answer[32:-4].decode()
    assert int.from_bytes(answer[6:8], "little") == len(said)
    assert said == "the robot uses version 3 of the link, with a key; update this computer's body_transformer"
    assert room.state()[0] is None


def test_the_robot_says_nothing_about_its_key(room, capsys):
    record(room)
    said = capsys.readouterr().out
    assert [json.loads(line)["event"] for line in said.splitlines()] == ["session", "bye", "damping"]
    assert KEY.hex() not in said
