"""The simulated robot as a separate process, in real time."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from body_transformer.deploy.robot import Command, Robot, State
from body_transformer.deploy.robots import open_robot
from body_transformer.deploy.robots.sim import SimRobot
from body_transformer.deploy.robots.sim_body import SimBody
from body_transformer.deploy.robots.sim_options import SimOptions

from .datagrams import KEY, udp
from .real_time import in_real_time

pytestmark = pytest.mark.alone

ZEROS, ONES = np.zeros(12), np.ones(12)
HOME = SimBody(SimOptions()).start_joints
CONTROLLER = """
    import time
    from body_transformer.deploy.robots import open_robot

    with open_robot("sim") as robot:
        print(robot.process.pid, flush=True)
        time.sleep(60)
"""


def hold() -> Command:
    return Command(HOME, ZEROS, 100 * ONES, ONES, ZEROS)


def wait(robot: Robot, seconds: float = 1.0) -> State | None:
    """Return the next measurement."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        state = robot.read()
        if state is not None:
            return state
        time.sleep(0.0005)
    return None


def stand(robot: Robot, seconds: float) -> list[State]:
    """Hold the pose at 50 Hz, and return the measurements."""
    states, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        state = robot.read()
        states += [state] if state is not None else []
        robot.send(hold())
        time.sleep(0.02)
    return states


def connected(port: int) -> SimRobot:
    """Connect to a running robot, as soon as its last controller counts as gone."""
    deadline = time.monotonic() + 10.0
    while True:
        robot = SimRobot(address=("127.0.0.1", port), key=KEY)
        try:
            return robot.__enter__()
        except ValueError as refusal:
            if "another controller" not in str(refusal) or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


class ByHand:
    """The robot's process, started by hand."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.log = folder / f"robot{len(list(folder.glob('robot*.log')))}.log"
        command = [sys.executable, "-m", "body_transformer.deploy.robots.sim_process", "--port", "0", *arguments]
        env = {**os.environ, "BOT_LINK_KEY": KEY.hex()}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env)
        self.port = int(self.wait_for("listening")["port"])

    def events(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.endswith("}")]

    def all(self, event: str) -> list[dict]:
        return [e for e in self.events() if e["event"] == event]

    def wait_for(self, event: str, seconds: float = 30.0) -> dict:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = self.all(event)
            if found:
                return found[-1]
            time.sleep(0.01)
        raise AssertionError(f"no {event!r} in: {self.log.read_text()}")


@pytest.fixture
def by_hand(tmp_path):
    started = []

    def start(*arguments: str) -> ByHand:
        started.append(ByHand(tmp_path, *arguments))
        return started[-1]

    yield start
    for robot in started:
        robot.process.kill()
        robot.process.wait()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


# -- the robot and its link --------------------------------------------------------------------------------------------


@in_real_time
def test_the_robot_stands_in_real_time_and_reports():
    with open_robot("sim", command_timeout_ms=500.0) as robot:
        first = wait(robot)
        assert robot.joints == SimBody(SimOptions()).joints
        started = time.monotonic()
        robot.begin_rollout()
        states = stand(robot, 1.0)
        robot.end_rollout()
        elapsed = time.monotonic() - started
        pid = robot.process.pid
    newest = states[-1]
    np.testing.assert_allclose(newest.joint_pos, HOME, atol=0.15)
    lag_s = robot.report.lag_s  # a busy machine is too slow for real time, and the robot reports it
    assert elapsed - lag_s - 0.3 < newest.stamp_s - first.stamp_s < elapsed + 0.3
    assert newest.sequence - first.sequence == pytest.approx(500 * (newest.stamp_s - first.stamp_s), abs=1)
    report = robot.report
    assert (report.fell, report.refused) == (False, 0)
    assert abs(report.distance_m) < 0.05
    assert elapsed - lag_s - 0.3 < report.duration_s < elapsed + 0.3
    assert not is_running(pid)


def test_the_options_reach_the_process():
    with open_robot("sim", start="hanging", payload_kg=-2.0, start_joints=[0.1] * 12, noise=0.0) as robot:
        state = wait(robot)
        np.testing.assert_allclose(state.joint_pos[:2], 0.1, atol=0.05)
        listening = robot._events()[0]
    assert SimOptions.from_dict(listening["options"]) == robot.options


@in_real_time
def test_a_session_survives_an_unreliable_network():
    bad = {"latency_ms": 20.0, "jitter_ms": 5.0, "loss_percent": 5.0, "duplicate_percent": 5.0, "noise": 1.0, "seed": 1}
    with open_robot("sim", command_timeout_ms=500.0, **bad) as robot:
        states = stand(robot, 1.0)
        trips = robot.round_trip_s
    numbers = [state.sequence for state in states]
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 20
    assert trips > 0.02
    assert not robot.report.fell
    assert robot.report.refused > 0


@pytest.mark.parametrize("latency_ms", [0.0, 40.0])
@in_real_time
def test_the_round_trip_is_the_links_latency_however_seldom_commands_are_sent(latency_ms):
    with open_robot("sim", command_timeout_ms=500.0, latency_ms=latency_ms) as robot:
        trips = []
        for _ in range(30):
            stand(robot, 0.03)
            trips += [robot.round_trip_s] if wait(robot) is not None else []
    usual_ms = 1e3 * np.nanmedian(trips)
    assert latency_ms - 1 < usual_ms < latency_ms + 12  # commands leave every 20 ms


@in_real_time
def test_measurements_of_a_link_that_is_always_too_slow_are_not_used():
    with open_robot("sim", command_timeout_ms=1000.0, latency_ms=300.0) as robot:
        stand(robot, 0.5)
        assert stand(robot, 0.3) == []
        assert 0.28 < robot.round_trip_s < 0.4
    with open_robot("sim", command_timeout_ms=1000.0, latency_ms=300.0) as robot:  # unknown before the first command
        assert wait(robot) is not None
        time.sleep(0.4)
        assert wait(robot) is not None


def test_a_command_beyond_the_a1s_hardware_is_cut_and_an_invalid_one_is_not_sent():
    with open_robot("sim") as robot:
        wanted = Command(HOME + 9, ZEROS, 5000 * ONES, 400 * ONES, 1e5 * ONES)
        back = robot.send(wanted)
        np.testing.assert_array_equal(back.position.reshape(4, 3), [[0.803, 4.19, -0.916]] * 4)
        for part, value in ((back.kp, 180.0), (back.kd, 20.0), (back.torque, 33.5)):
            np.testing.assert_array_equal(part, value)
        usual = hold()
        assert robot.send(usual) is usual
        for bad in (np.full(12, np.nan), np.zeros(11)):
            with pytest.raises(ValueError, match="kp of a command must be 12 finite numbers"):
                robot.send(Command(HOME, ZEROS, bad, ONES, ZEROS))
    assert 1 <= robot.report.commands <= 2 + 5  # and the damping


def test_a_lost_report_is_read_from_the_output_of_the_process(monkeypatch):
    monkeypatch.setattr("body_transformer.deploy.robots.sim.REPORT_TIMEOUT_S", 0.0)
    with open_robot("sim", command_timeout_ms=500.0) as robot:
        stand(robot, 0.2)
    assert robot.report is not None
    assert robot.report.commands > 1


# -- refused connections -----------------------------------------------------------------------------------------------


def test_a_robot_without_the_expected_joints_is_refused():
    with pytest.raises(ValueError, match="the robot refuses: the robot's joints are FR_hip"):
        SimRobot(expected=("hip", "knee")).__enter__()


def test_an_address_without_a_robot_is_an_error(monkeypatch):
    monkeypatch.setattr("body_transformer.deploy.robots.sim.HELLO_TIMEOUT_S", 0.2)
    with udp() as sock:
        port = sock.getsockname()[1]
    with pytest.raises(ValueError, match=f"no robot answers at 127.0.0.1:{port}"):
        SimRobot(address=("127.0.0.1", port), key=KEY).__enter__()


def test_a_robot_on_another_host_needs_remote_true():
    with pytest.raises(ValueError, match=r"'203.0.113.7' is not on this host.*remote=True"):
        SimRobot(address=("203.0.113.7", 47001))
    SimRobot(address=("203.0.113.7", 47001), remote=True, key=KEY)


def test_a_robot_at_an_address_needs_a_key(monkeypatch):
    monkeypatch.delenv("BOT_LINK_KEY", raising=False)
    with pytest.raises(ValueError, match=r"^the link to a robot needs its key: give --key-file FILE"):
        SimRobot(address=("127.0.0.1", 47001))
    monkeypatch.setenv("BOT_LINK_KEY", KEY.hex())
    SimRobot(address=("127.0.0.1", 47001))


def test_a_robot_with_another_key_does_not_answer(by_hand, monkeypatch):
    monkeypatch.setattr("body_transformer.deploy.robots.sim.HELLO_TIMEOUT_S", 0.5)
    robot = by_hand()
    with pytest.raises(ValueError, match=r"no robot answers at .*: either none runs there, or it has another key"):
        SimRobot(address=("127.0.0.1", robot.port), key=bytes(32)).__enter__()
    monkeypatch.undo()
    mine = connected(robot.port)
    assert wait(mine) is not None
    mine.__exit__()


def test_the_key_of_a_started_robot_is_in_no_argument_and_no_environment():
    with open_robot("sim") as robot:
        key, folder = robot._key.hex().encode(), Path(f"/proc/{robot.process.pid}")
        if folder.exists():
            assert key not in (folder / "cmdline").read_bytes()
            assert key not in (folder / "environ").read_bytes()
        assert key not in robot._output_text()
    with open_robot("sim") as another:
        assert another._key != robot._key


def test_options_are_not_for_a_robot_that_runs_already():
    with pytest.raises(ValueError, match="has its own"):
        SimRobot(SimOptions(latency_ms=5.0), address=("127.0.0.1", 47001))


def test_a_process_that_cannot_start_says_why(monkeypatch, tmp_path):
    (tmp_path / "mujoco.py").write_text("raise ImportError('no mujoco on this computer')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with pytest.raises(ValueError, match=r"did not start.*: ImportError: no mujoco on this computer$") as error:
        open_robot("sim").__enter__()
    assert "\n" not in str(error.value)


def test_outside_of_with_reading_is_an_error():
    robot = open_robot("sim")
    with pytest.raises(ValueError, match="not connected"):
        robot.read()


# -- killed processes --------------------------------------------------------------------------------------------------


@in_real_time
def test_when_bot_deploy_is_killed_the_robot_damps_by_its_time_out_and_takes_the_next_one(by_hand, folder, tmp_path):
    robot = by_hand("--start", "hanging")  # so that a policy that cannot walk keeps running
    key_file = tmp_path / "key"
    key_file.write_text(KEY.hex())
    key_file.chmod(0o600)
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "body_transformer.cli.main", "deploy", str(folder), "--seconds", "60"]
    command += ["--loop-hz", "50", "--stale-ms", "1000"]  # on a busy machine, too
    command += ["--address", f"127.0.0.1:{robot.port}", "--out", str(tmp_path / "log"), "--key-file", str(key_file)]
    deploy = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=end)
    os.close(end)
    shown = b""
    try:
        while b"policy  " not in shown:  # the live line
            assert select.select([terminal], [], [], 60.0)[0]
            assert deploy.poll() is None, shown
            shown = (shown + os.read(terminal, 4096))[-4096:]
        time.sleep(0.5)
        before = len(robot.all("damping"))  # a busy machine may have paused for so long
        assert before == len(robot.all("recovered"))
        deploy.kill()  # SIGKILL
        killed_s = time.monotonic()
        while len(robot.all("damping")) == before:
            assert time.monotonic() - killed_s < 2.0
            time.sleep(0.001)
        damped_s = time.monotonic() - killed_s
    finally:
        deploy.kill()
        deploy.wait()
        os.close(terminal)
    assert 49.9 < robot.all("damping")[-1]["silent_ms"] < 55
    assert damped_s < 0.05 + 0.1  # 100 ms for a busy machine
    assert list((tmp_path / "log").iterdir()) == []  # not half a log
    next_one = connected(robot.port)
    assert wait(next_one) is not None
    stand(next_one, 0.2)
    next_one.__exit__()
    assert next_one.report.commands > 1
    assert robot.process.poll() is None


def test_a_robot_does_not_outlive_the_controller_that_started_it():
    command = [sys.executable, "-c", textwrap.dedent(CONTROLLER)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as controller:
        robot = int(controller.stdout.readline())
        assert is_running(robot)
        controller.kill()  # SIGKILL: no BYE is sent
    deadline = time.monotonic() + 5.0
    while is_running(robot) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(robot)


@in_real_time
def test_when_the_robot_is_killed_the_controller_sees_no_state_and_does_not_hang():
    with open_robot("sim") as robot:
        assert wait(robot) is not None
        robot.process.send_signal(signal.SIGKILL)
        robot.process.wait()
        while robot.read() is not None:  # states in transit
            pass
        slowest = 0.0
        for _ in range(50):
            started = time.monotonic()
            assert robot.read() is None
            robot.send(hold())
            slowest = max(slowest, time.monotonic() - started)
        assert slowest < 0.05
        assert not robot.alive
        left = time.monotonic()
    assert time.monotonic() - left < 0.5
    assert robot.report is None


def test_a_terminated_robot_process_reports_and_ends(by_hand):
    robot = by_hand()
    robot.process.terminate()
    assert robot.process.wait(5.0) == 0
    assert robot.events()[-1]["event"] == "report"


@in_real_time
def test_a_hung_robot_process_does_not_hang_the_controller():
    with open_robot("sim") as robot:
        wait(robot)
        robot.process.send_signal(signal.SIGSTOP)
        left = time.monotonic()
    assert time.monotonic() - left < 6.0
    assert not robot.alive
