"""Strings of contracts, robots and networks reach the terminal with their control characters escaped."""

import json

import pytest

from body_transformer.cli.deploy import main
from body_transformer.cli.deploy_log import print_result
from body_transformer.cli.deploy_terminal import status_line
from body_transformer.deploy.link import Kind, Link
from body_transformer.deploy.robots.sim import SimRobot
from body_transformer.deploy.safety import Reason

from .datagrams import packet
from .virtual_robot import virtual_run

EVIL = "\x1b]0;title\x07\x1b[2J\u202ename\nforged line\x9b1A\ud800"


def is_harmless(text: str) -> bool:
    return all(line.isprintable() for line in text.splitlines()) and "forged" not in text.splitlines()


def test_the_summary_of_a_run_is_harmless(capsys):
    runtime, robot = virtual_run()
    send = robot.send

    def trip(command):
        robot.tripped = EVIL if len(robot.sent) > 20 else ""
        return send(command)

    robot.send, robot.tripped = trip, ""
    result = runtime.run()
    assert result.stop.reason is Reason.ROBOT_TRIPPED
    assert EVIL in str(result.stop)
    print_result(EVIL, EVIL, result, None, {EVIL: EVIL, "fell": False})
    said = capsys.readouterr().out
    assert is_harmless(said)
    assert said.count("\\x1b[2J\\u202ename\\nforged line") == 5
    assert status_line(runtime).isprintable()


def test_a_robots_refusal_is_harmless(monkeypatch):
    """A robot with the key may still be broken, or relay the text of others."""

    class Refusing(Link):
        def receive(self):
            return iter([packet(Kind.REFUSE, payload=EVIL.encode(errors="replace"))])

    monkeypatch.setattr("body_transformer.deploy.robots.sim.Link", Refusing)
    with pytest.raises(ValueError, match="the robot refuses: ") as refused:
        SimRobot(address=("127.0.0.1", 47001), key=bytes(32)).__enter__()
    assert str(refused.value).isprintable()


def test_the_check_of_a_driver_is_harmless(tmp_path, monkeypatch, capsys):
    (tmp_path / "evil_driver.py").write_text(
        "from body_transformer.deploy.robot import Robot\n"
        "class Evil(Robot):\n"
        "    joints = ('a',)\n"
        "    def read(self): raise ValueError('\\x1b[2J\\nforged line')\n"
        "    def send(self, command): return command\n"
        "    def __exit__(self, *error): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match="failed"):
        main(["--check", "evil_driver:Evil"])
    said = capsys.readouterr().out
    assert is_harmless(said)
    assert "\\x1b[2J" in said
    with pytest.raises(ValueError, match="failed"):
        main(["--check", "evil_driver:Evil", "--json"])
    assert json.loads(capsys.readouterr().out)
