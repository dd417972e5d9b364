"""Many malformed datagrams at either end of the link cause no crash and move no command."""

import json
import math
import time
from collections import Counter

import numpy as np
import pytest

from body_transformer.deploy.link import (
    FROM_CONTROLLER,
    FROM_ROBOT,
    DatagramError,
    Kind,
    Link,
    Packet,
)
from body_transformer.deploy.observation import JointOrder, Measured
from body_transformer.deploy.payloads import pack_command, pack_state, unpack_names, unpack_state
from body_transformer.deploy.robot import Command, State
from body_transformer.deploy.robots.sim import SimRobot
from body_transformer.deploy.robots.sim_options import SimOptions, SimReport
from body_transformer.deploy.safety import Reason, SafetyConfig
from body_transformer.deploy.state_check import StateCheck

from .datagrams import KEY, NONCE, SESSION, malformed, packet, received, sealed, udp
from .virtual_robot import DEFAULT_POSE, ROBOT_JOINTS, a1_contract
from .virtual_robot import JOINTS as A1_JOINTS

NUM_DATAGRAMS = 100_000


# -- at the robot ------------------------------------------------------------------------------------------------------


def garbage(rng: np.random.Generator, valid: Packet, sender: Link, in_order: bool = False) -> bytes:
    """Return a datagram with the sender's digest but a wrong header, a wrong payload, or both.

    `valid` is the correct packet. With `in_order`, a packet that differs only in its values has the same number as
    `valid`.
    """
    payload = bad_payload(rng, valid.payload) if rng.random() < 0.7 else valid.payload
    wrong = [name for name in ("kind", "session", "joints", "sequence") if rng.random() < 0.2]
    if payload == valid.payload:
        wrong.append(str(rng.choice(["session", "joints", "old"])))
    kinds = [int(rng.integers(256)), *Kind]
    kind = int(kinds[rng.integers(len(kinds))]) if "kind" in wrong else int(valid.kind)
    ahead = valid.sequence + int(rng.integers(1000))
    numbers = [0, ahead, 2**63, 2**64 - 1, int.from_bytes(rng.bytes(8))]
    sequence = numbers[rng.integers(len(numbers))] if "sequence" in wrong else ahead
    if "old" in wrong:
        sequence = int(rng.integers(valid.sequence))
    elif in_order and kind == valid.kind and len(payload) == len(valid.payload):
        sequence = valid.sequence
    return sealed(
        Packet(
            kind,
            rng.bytes(16) if "session" in wrong else valid.session,
            int(rng.integers(2**32)) if "joints" in wrong else valid.joints,
            sequence,
            float(rng.choice([0.0, -1.0, 1e300, np.nan, np.inf, -np.inf])),
            payload or b"\0" * (kind == Kind.BYE),  # an empty BYE would be valid
        ),
        sender,
    )


def bad_payload(rng: np.random.Generator, valid: bytes) -> bytes:
    """Return no bytes, random bytes, too few or too many floats, or the right number with invalid ones among them."""
    way = rng.integers(4)
    if way == 0:
        return rng.bytes(int(rng.integers(300))) if rng.random() < 0.9 else b""
    values = np.frombuffer(valid).copy() if rng.random() < 0.5 else rng.normal(size=len(valid) // 8)
    if way == 1:
        return values[: rng.integers(len(values))].tobytes()
    if way == 2:
        return np.append(values, rng.normal(size=rng.integers(1, 30))).tobytes()
    values[rng.choice(len(values) - 1, size=rng.integers(1, len(values)), replace=False)] = rng.choice(NONSENSE)
    return values.tobytes()


NONSENSE = (np.nan, np.inf, -np.inf, 1e300, -1e7)


def test_a_hundred_thousand_malformed_datagrams_move_neither_the_simulated_robot_nor_its_session(capsys):
    """Senders are the controller's own socket and another one; only the valid commands in between are accepted."""
    pytest.importorskip("mujoco")
    from body_transformer.deploy.robots.sim_process import SimProcess

    robot, controller = SimProcess(SimOptions(), udp(), KEY), Link(udp(), FROM_ROBOT, KEY)
    rng, joints, home = np.random.default_rng(1), robot.body.joints, robot.body.start_joints
    controller.open(robot.link.address, SESSION)
    controller.send(Kind.HELLO, b"", 0.0)
    robot.tick()
    (challenge,) = received(controller)
    controller.agree_nonce(challenge.payload)
    controller.send(Kind.OPEN, b"", 0.0)
    robot.tick()
    controller.agree(joints)
    hold = Command(home, np.zeros(12), np.full(12, 100.0), np.ones(12), np.zeros(12))
    away = packet(joints=joints, payload=pack_command(Command(home + 0.5, *hold.parts[1:])))
    with udp() as stranger:
        for batch in range(NUM_DATAGRAMS // 100):
            nearly = away._replace(sequence=batch + 1)
            for _ in range(100):
                sender = controller._socket if rng.random() < 0.5 else stranger
                data = sealed(nearly, controller)
                data = malformed(rng, data) if rng.random() < 0.5 else garbage(rng, nearly, controller)
                sender.sendto(data, robot.link.address)
            stranger.sendto(sealed(nearly, controller), robot.link.address)  # only its sender is wrong
            controller.send(Kind.COMMAND, pack_command(hold), float(batch))
            robot.tick()
            assert (robot.link.peer, robot.link.session) == (controller.address, SESSION)
            assert (robot._session.commands, robot._session.bye_s) == (batch + 1, None)
            np.testing.assert_array_equal(robot._current().position, home)
            list(controller.datagrams())
    report, refused = robot.report(), robot.link.refused
    assert (report.fell, report.timeouts) == (False, 0)
    assert report.refused == refused.total() > 0.98 * NUM_DATAGRAMS  # an empty HELLO is answered, whatever its sender
    damaged = {"length", "magic", "version", "digest"}
    strange = {"peer", "kind", "direction", "session", "joints", "sequence"}
    assert set(refused) == damaged | strange | {"payload", "payload length", "values", "joint names"}
    assert min(refused.values()) > 100
    assert [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()] == ["session"]
    robot.link.close()
    controller.close()


# -- at the controller -------------------------------------------------------------------------------------------------


def measured(joint_pos: np.ndarray) -> State:
    return State(0, 0.0, 0.0, joint_pos, *np.zeros((2, 12)), np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]))


@pytest.fixture
def standing():
    """Yield the controller's side of a simulated robot, the robot's end of the link, and the check of states."""
    robot, controller = Link(udp(), FROM_CONTROLLER, KEY), Link(udp(), FROM_ROBOT, KEY)
    robot.open(controller.address, SESSION, NONCE, ROBOT_JOINTS)
    controller.open(robot.address, SESSION, NONCE, ROBOT_JOINTS)
    sim = SimRobot(address=robot.address, key=KEY)
    sim.link, sim.joints = controller, ROBOT_JOINTS
    control = a1_contract().control
    order = JointOrder(control.joints, ROBOT_JOINTS)
    yield sim, robot, StateCheck(control, SafetyConfig(), order, Measured(12))
    robot.close()
    controller.close()


UNPACK = {
    Kind.STATE: lambda one: unpack_state(one, 12, time.monotonic())[0],
    Kind.WELCOME: lambda one: unpack_names(one.payload),
    Kind.REPORT: lambda one: SimReport.unpack(one.payload),
    Kind.CHALLENGE: lambda one: one.payload,
    Kind.REFUSE: lambda one: one.payload.decode(errors="replace"),
}


def test_the_newest_state_is_read_whatever_the_order_of_arrival(standing):
    sim, robot, _ = standing
    numbered = [robot.number(Kind.STATE, pack_state(measured(robot_pose()), math.nan), 1.0 + k) for k in range(4)]
    damaged = bytearray(robot.number(Kind.STATE, pack_state(measured(robot_pose()), math.nan), 9.0))
    damaged[-1] ^= 1
    too_short = robot.number(Kind.STATE, pack_state(measured(robot_pose()), math.nan)[:-8], 9.0)
    for data in (numbered[0], numbered[3], bytes(damaged), numbered[1], b"?", numbered[2], too_short):
        robot.transmit(data, sim.link.address)
    time.sleep(0.002)
    assert sim.read().sequence == 4
    assert sim.read() is None
    robot.transmit(numbered[1], sim.link.address)  # an old one comes late
    time.sleep(0.002)
    assert sim.read() is None


def test_fifty_thousand_malformed_datagrams_are_no_state_of_the_robot(standing):
    """The state check accepts none of them as a measurement, and the robot's next one is read."""
    sim, robot, check = standing
    rng, pose = np.random.default_rng(2), robot_pose()
    payload = pack_state(measured(pose + 0.05), math.nan)
    passed, other = Counter(), Counter()
    with udp() as stranger:
        for batch in range(500):
            right = packet(Kind.STATE, sequence=robot._sent[Kind.STATE] + 1, payload=payload, joints=ROBOT_JOINTS)
            for _ in range(100):
                sender = robot._socket if rng.random() < 0.8 else stranger
                way = rng.random() < 0.3
                data = malformed(rng, sealed(right, robot)) if way else garbage(rng, right, robot, in_order=True)
                sender.sendto(data, sim.link.address)
            came = [sim.read()] if batch % 2 else []
            for one in sim.link.receive():
                other[one.kind] += 1
                try:
                    came.append(UNPACK[one.kind](one))
                except DatagramError as reason:
                    sim.link.reject(one, reason)
            passed.update(check(one, time.monotonic()) for one in came if isinstance(one, State))
            robot._sent[Kind.STATE] += 1  # the number used in `right`
            robot.send(Kind.STATE, pack_state(measured(pose), math.nan), 0.01 * (batch + 1))
            state = sim.read()
            assert state is not None
            np.testing.assert_array_equal(state.joint_pos, pose)
            assert check(state, time.monotonic()) is None
    assert None not in passed
    assert set(passed) == {Reason.STATE_NOT_FINITE, Reason.STATE_ABSURD}
    assert set(other) == set(FROM_ROBOT)
    reasons = {"kind", "direction", "session", "joints", "sequence", "payload length", "joint names"}
    assert reasons < set(sim.link.refused)


def robot_pose() -> np.ndarray:
    return np.array([dict(zip(A1_JOINTS, DEFAULT_POSE, strict=True))[name] for name in ROBOT_JOINTS])


def test_an_invalid_report_is_ignored_until_a_valid_one_comes(standing):
    sim, robot, _ = standing
    said = SimReport(False, -1.0, 5.0, 2.5, 0.1, 0.5, 0.2, 20.0, commands=7, timeouts=0, refused=3, lag_s=0.0)
    robot.send(Kind.REPORT, said.pack()[:-8], 0.0)
    robot.send(Kind.REPORT, np.full(12, np.nan).tobytes(), 0.0)
    robot.send(Kind.REPORT, said.pack(), 0.0)
    sim._leave(sim.link)
    assert sim.report == said
