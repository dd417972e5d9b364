"""The simulated robot in this process, with real sockets; tests advance its time."""

import json
import math
from contextlib import ExitStack

import numpy as np
import pytest

from body_transformer.deploy.link import FROM_ROBOT, Kind, Link, Packet
from body_transformer.deploy.payloads import pack_command, pack_names, unpack_names, unpack_state
from body_transformer.deploy.robot import Command, State
from body_transformer.deploy.robots.sim_options import SimOptions, SimReport
from body_transformer.deploy.robots.sim_process import SimProcess, main

from .datagrams import KEY, udp

ZEROS, ONES = np.zeros(12), np.ones(12)


class Controller:
    """A controller that a test steps."""

    def __init__(self, robot: SimProcess, session: int = 1, key: bytes = KEY) -> None:
        self.robot, self.session = robot, bytes([session]) * 16
        self.link = Link(udp(), FROM_ROBOT, key)
        self.link.open(robot.link.address, self.session)
        self.packets: list[Packet] = []
        self.joints: tuple[str, ...] = ()

    def hello(self, joints: tuple[str, ...] = ()) -> Packet | None:
        self.link.send(Kind.HELLO, b"", 0.0)
        if (challenge := self.wait_for(Kind.CHALLENGE)) is None:
            return None
        self.link.agree_nonce(challenge.payload)
        self.link.send(Kind.OPEN, pack_names(joints), 0.0)
        answer = self.wait_for(Kind.WELCOME, Kind.REFUSE)
        if answer and answer.kind is Kind.WELCOME:
            self.joints = unpack_names(answer.payload)
            self.link.agree(self.joints)
        return answer

    def command(self, command: Command, stamp_s: float = 0.0) -> None:
        self.link.send(Kind.COMMAND, pack_command(command), stamp_s)

    def ticks(self, count: int) -> None:
        for _ in range(count):
            self.robot.tick()
            self.packets += self.link.receive()

    def wait_for(self, *kinds: Kind) -> Packet | None:
        """Let the robot run until it answers with one of these kinds, for 50 ticks at most."""
        before = len(self.packets)
        for _ in range(50):
            self.ticks(1)
            if found := [packet for packet in self.packets[before:] if packet.kind in kinds]:
                return found[-1]
        return None

    def newest(self, kind: Kind) -> Packet | None:
        return next((packet for packet in reversed(self.packets) if packet.kind is kind), None)

    def state(self) -> State:
        packet = self.newest(Kind.STATE)
        assert packet is not None
        return unpack_state(packet, 12, 0.0)[0]


@pytest.fixture
def another():
    """Return a function that starts a controller of a robot."""
    with ExitStack() as ends:

        def controller(robot: SimProcess, session: int, key: bytes = KEY) -> Controller:
            made = Controller(robot, session, key)
            ends.callback(made.link.close)
            return made

        yield controller


@pytest.fixture
def start(another):
    """Return a function that starts a robot, and a controller in session with it."""
    with ExitStack() as ends:

        def robot_and_controller(greet: bool = True, **options) -> tuple[SimProcess, Controller]:
            robot = SimProcess(SimOptions(**options), udp(), KEY)
            ends.callback(robot.link.close)
            controller = another(robot, 1)
            if greet:
                assert controller.hello() is not None
            return robot, controller

        yield robot_and_controller


def hold(robot: SimProcess, offset: float = 0.0) -> Command:
    return Command(robot.body.start_joints + offset, ZEROS, 100 * ONES, ONES, ZEROS)


def events(capsys, name: str) -> list[dict]:
    return [e for e in map(json.loads, capsys.readouterr().out.splitlines()) if e["event"] == name]


# -- the start of a session --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", [slice(0), slice(None), slice(None, None, -1)], ids=["any", "same", "reversed"])
def test_the_controller_learns_the_joints_and_their_order(start, expected):
    robot, controller = start(greet=False)
    assert controller.hello(robot.body.joints[expected]).kind is Kind.WELCOME
    assert controller.joints == robot.body.joints
    assert controller.joints[0] == "FR_hip_joint"


def test_without_a_hello_nothing_is_sent(start):
    _, controller = start(greet=False)
    controller.ticks(5)
    assert controller.packets == []


@pytest.mark.parametrize("joints", [("hip",), ("a", "b")])
def test_a_controller_for_other_joints_is_refused_with_the_reason(start, joints):
    robot, controller = start(greet=False)
    answer = controller.hello(joints)
    assert answer.kind is Kind.REFUSE
    assert answer.payload.decode().startswith("the robot's joints are FR_hip_joint, FR_thigh_joint")
    assert robot.link.peer is None


def test_a_second_controller_is_refused_until_the_first_is_silent(start, another):
    robot, first = start()
    second = another(robot, 2)
    assert second.hello().payload == b"the robot has another controller"
    for _ in range(60):  # 1.2 s of commands
        first.command(hold(robot))
        second.ticks(10)
    second.packets.clear()
    assert second.hello().kind is Kind.REFUSE
    second.ticks(510)  # silent for 1 s
    second.packets.clear()
    assert second.hello().kind is Kind.WELCOME
    assert robot.link.peer == second.link.address


def test_a_repeated_hello_is_answered_again_and_does_not_restart_the_session(start):
    robot, controller = start()
    controller.ticks(50)
    time_s = robot.body.time_s
    controller.hello()
    assert robot.body.time_s > time_s
    assert len([p for p in controller.packets if p.kind is Kind.WELCOME]) == 2


def test_a_new_session_starts_in_the_start_pose(start, another):
    robot, controller = start()
    controller.command(Command.damping(12, 1.0))
    controller.ticks(400)
    controller.link.send(Kind.BYE, b"", 0.0)
    controller.ticks(1)
    another(robot, 2).hello()
    assert robot.body.time_s == pytest.approx(0.002)
    assert robot.body.pose().position[2] > 0.29


# -- measurements ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state_hz", [500.0, 250.0])
def test_every_measurement_is_sent_with_its_number_and_time(start, state_hz):
    _, controller = start(state_hz=state_hz)
    controller.ticks(20)
    states = [p for p in controller.packets if p.kind is Kind.STATE]
    assert [p.sequence for p in states] == list(range(2, 22))  # the first came before the joints were agreed on
    np.testing.assert_allclose(np.diff([p.stamp_s for p in states]), 1 / state_hz)


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_a_state_has_the_stamp_of_the_newest_command_and_its_age(start, factor):
    robot, controller = start(real_time_factor=factor)
    controller.ticks(1)
    assert math.isnan(unpack_state(controller.newest(Kind.STATE), 12, 0.0)[1])
    controller.command(hold(robot), stamp_s=12.5)
    controller.ticks(1)
    assert unpack_state(controller.newest(Kind.STATE), 12, 0.0)[1] == pytest.approx(12.5, abs=1e-9)
    controller.ticks(5)
    held_s = 5 / robot.options.state_hz / factor
    assert unpack_state(controller.newest(Kind.STATE), 12, 0.0)[1] == pytest.approx(12.5 + held_s, abs=1e-9)


@pytest.mark.parametrize("fault", ["silent", "nan", "absurd", "frozen"])
def test_a_fault_begins_at_its_time(start, fault):
    robot, controller = start(fault=fault, fault_at_s=0.1)
    for _ in range(40):
        controller.command(hold(robot, 0.1))
        controller.ticks(1)
    before = controller.state()
    assert np.isfinite(before.joint_pos).all()
    assert np.abs(before.joint_vel).max() < 100
    for _ in range(40):
        controller.command(hold(robot, 0.1))
        controller.ticks(1)
    controller.packets = [p for p in controller.packets if p.kind is not Kind.STATE or p.stamp_s > 0.12]
    if fault == "silent":
        assert controller.newest(Kind.STATE) is None
        return
    after = controller.state()
    assert np.isnan(after.joint_pos).all() == (fault == "nan")
    assert (after.joint_vel == 1e6).all() == (fault == "absurd")
    states = [unpack_state(p, 12, 0.0)[0].joint_pos for p in controller.packets if p.kind is Kind.STATE]
    assert all((pos == states[0]).all() for pos in states) == (fault == "frozen")


# -- commands ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [50.0, 20.0])
def test_the_robot_damps_by_itself_after_the_time_out_and_not_before(start, capsys, timeout_ms):
    robot, controller = start(command_timeout_ms=timeout_ms)
    controller.command(hold(robot))
    controller.ticks(int(timeout_ms / 2))  # at 0, 2, … ms
    assert robot.report().timeouts == 0
    assert np.abs(robot.body.torque).max() > 1.0
    controller.ticks(1)
    assert robot.report().timeouts == 1
    np.testing.assert_array_equal(robot._current().kp, 0.0)
    np.testing.assert_array_equal(robot._current().kd, 5.0)
    assert [e["silent_ms"] for e in events(capsys, "damping")] == pytest.approx([timeout_ms])


def test_the_robot_recovers_when_commands_come_again(start, capsys):
    robot, controller = start()
    controller.command(hold(robot))
    controller.ticks(30)
    controller.command(hold(robot))
    controller.ticks(1)
    assert len(events(capsys, "recovered")) == 1
    assert robot.report().commands == 2


def test_latency_is_from_a_measurement_to_the_command_that_answers_it(start):
    robot, controller = start(greet=False, latency_ms=20.0)
    controller.hello()
    controller.link.agree(robot.body.joints)
    controller.ticks(20)
    newest = controller.newest(Kind.STATE)
    controller.command(hold(robot))
    while robot.report().commands == 0:
        controller.ticks(1)
    assert 1e3 * (robot._session.command_s - newest.stamp_s) == pytest.approx(20.0, abs=2.1)


# -- the end of a session ----------------------------------------------------------------------------------------------


def test_after_bye_the_robot_reports_damps_and_ignores_commands(start):
    robot, controller = start()
    controller.command(hold(robot))
    controller.ticks(5)
    controller.link.send(Kind.BYE, b"", 0.0)
    controller.command(hold(robot, 0.5))
    controller.ticks(10)
    report = SimReport.unpack(controller.newest(Kind.REPORT).payload)
    assert (report.commands, report.fell) == (1, False)
    assert robot.report().commands == 1
    assert np.abs(robot.body.torque).max() < 33.5


def test_marks_begin_and_end_the_rollout_of_the_report(start):
    robot, controller = start(start="lying")
    controller.command(Command.damping(12, 5.0))
    controller.ticks(100)
    assert robot.report().fell
    for _ in range(3):
        controller.link.send(Kind.MARK, b"end", 1.0)
    controller.ticks(10)
    assert robot.report().duration_s == pytest.approx(0.202, abs=0.01)
    for _ in range(3):
        controller.link.send(Kind.MARK, b"begin", 2.0)
        controller.ticks(10)
    assert robot.report().duration_s == pytest.approx(0.06)  # the repetitions did not restart it


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--start", "homme"], "start: unknown value 'homme'"),
        (["--start-joints", "1", "2"], "start_joints has 2 angles"),
        (["--host", "203.0.113.1"], "cannot start at 203.0.113.1"),
    ],
)
def test_a_robot_that_cannot_start_gives_the_reason(capsys, monkeypatch, arguments, message):
    monkeypatch.setenv("BOT_LINK_KEY", KEY.hex())
    assert main(["--port", "0", *arguments]) == 2
    assert message in capsys.readouterr().err
