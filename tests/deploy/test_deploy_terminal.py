"""The terminal of `bot deploy`: the emergency stop and the status line."""

import math
import os
import select
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from body_transformer.cli.deploy_terminal import Emergency, status_line, stop_key
from body_transformer.deploy.runtime_config import Phase
from body_transformer.deploy.safety import Reason, Stop

from .virtual_robot import is_damping, virtual_run


class Stoppable:
    def __init__(self) -> None:
        self.why, self.asked = "", threading.Event()

    def stop(self, why: str) -> None:
        self.why = why
        self.asked.set()


@pytest.mark.parametrize(("typed", "stops"), [(b" ", True), (b"\r", True), (b"q", True), (b"x", False)])
def test_space_enter_and_q_are_the_emergency_stop(terminal, typed, stops):
    runtime = Stoppable()
    with stop_key(runtime.stop):
        terminal.write(typed)
        assert runtime.asked.wait(2 if stops else 0.3) == stops
    assert runtime.why == ("key" if stops else "")
    terminal.close()


def test_a_closed_terminal_is_an_emergency_stop_and_not_an_error(terminal):
    runtime = Stoppable()
    with stop_key(runtime.stop):
        terminal.close()
        assert runtime.asked.wait(2)
    assert runtime.why == "the terminal is gone"


def test_a_key_typed_before_the_run_counts(terminal):
    runtime = Stoppable()
    terminal.write(b"\r")
    assert select.select([sys.stdin], [], [], 2)[0]
    with stop_key(runtime.stop):
        assert runtime.asked.wait(2)


def test_without_a_keyboard_a_line_says_that_no_key_stops_the_run(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    with stop_key(Stoppable().stop):
        pass
    assert f"no key stops this run, as there is no keyboard; kill -INT {os.getpid()} does" in capsys.readouterr().err


IN_THE_BACKGROUND = """
import os, sys
from body_transformer.cli.deploy_terminal import stop_key

os.setsid()
sys.stdin = open(sys.argv[1])  # the session's terminal now
child = os.fork()
if not child:
    os.setpgid(0, 0)
    with stop_key(print):
        os._exit(7)
status = os.waitpid(child, os.WUNTRACED)[1]
if os.WIFSTOPPED(status):
    print("suspended")
    os.kill(child, 9)
else:
    print("ended with", os.waitstatus_to_exitcode(status))
sys.stdout.flush()
os._exit(0)
"""


def test_in_the_background_a_run_is_not_suspended_and_a_line_says_that_no_key_stops_it():
    near, far = os.openpty()
    done = subprocess.run(
        [sys.executable, "-c", IN_THE_BACKGROUND, os.ttyname(far)], capture_output=True, text=True, timeout=60
    )
    os.close(near)
    os.close(far)
    assert done.stdout == "ended with 7\n"
    assert "no key stops this run, as it runs in the background" in done.stderr


def test_a_stop_before_there_is_a_runtime_keeps_it_from_starting():
    emergency, (runtime, robot) = Emergency(), virtual_run()
    emergency.stop("key")
    emergency.watch(runtime)
    result = runtime.run()
    assert str(result.stop) == "emergency stop: key"
    assert result.policy_seconds == 0
    assert all(is_damping(command) for _, command in robot.sent)


@pytest.mark.parametrize("after_a_key", [False, True])
def test_before_there_is_a_runtime_a_signal_interrupts_and_a_second_one_does_not_prevent_damping(after_a_key):
    emergency = Emergency()
    if after_a_key:
        emergency.stop("key")
    with pytest.raises(KeyboardInterrupt):
        emergency.signal("SIGTERM")
    emergency.signal("SIGTERM")


def test_a_signal_stops_the_runtime_once_there_is_one():
    emergency, (runtime, _) = Emergency(), virtual_run()
    emergency.watch(runtime)
    emergency.signal("SIGTERM")
    assert str(runtime.run().stop) == "emergency stop: SIGTERM"


# -- status line -------------------------------------------------------------------------------------------------------


def test_the_live_line_shows_rate_latency_state_and_interventions():
    interventions = SimpleNamespace(stop=None, total=7)
    controller = SimpleNamespace(phase=Phase.POLICY, age_s=0.00126, interventions=interventions)
    log, robot = SimpleNamespace(num_ticks=1234), SimpleNamespace(round_trip_s=0.02004)
    now = SimpleNamespace(controller=controller, log=log, robot=robot, elapsed_s=12.34, work_s=0.000512, missed=2)
    assert status_line(now) == (
        "policy     12.3 s  100.0 Hz  step  0.51 ms  link  20.0 ms  state   1.3 ms old  missed 2  interventions 7"
    )
    robot.round_trip_s = math.nan
    assert "link     –  state" in status_line(now)
    robot.round_trip_s = -0.0011  # while a simulated robot catches up, its clock is faster than real time
    assert "link   0.0 ms" in status_line(now)
    interventions.stop = Stop(Reason.STATE_LOST, "110 ms")
    assert status_line(now).startswith("policy     12.3 s  state lost: 110 ms   100.0 Hz")  # a narrow terminal shows it


def test_the_live_line_follows_a_run():
    seen = []
    runtime, _robot = virtual_run(lambda state, seconds: seen.append(status_line(runtime)) or [state])
    runtime.run()
    assert {line.split()[0] for line in seen} >= {"ramp", "hold", "policy", "damping"}
    assert float(seen[-1].partition(" Hz")[0].split()[-1]) == pytest.approx(50, rel=0.02)
    assert seen[-1].endswith("interventions 0")
