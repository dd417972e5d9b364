"""`bot deploy FOLDER --robot MODULE:CLASS` with a driver outside the package, in real time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from body_transformer.cli.main import main
from body_transformer.deploy.saved_log import SavedLog

from .real_time import in_real_time
from .virtual_robot import JOINTS

pytestmark = pytest.mark.alone

DRIVER = '''
import time
from pathlib import Path

import numpy as np

from body_transformer.deploy.robot import Command, Robot, State


class Dog(Robot):
    """Joints that move to their targets at a limited speed; each command's largest gains are a line of a file."""

    def __init__(self, joints, speed, file):
        self.joints, self.speed, self.file = tuple(reversed(joints)), speed, Path(file)
        pose = {"hip": 0.0, "thigh": 0.9, "calf": -1.6}
        self.pos = self.target = np.array([pose[name.split("_")[1]] for name in self.joints])
        self.sequence, self.time_s = 0, time.monotonic()

    @classmethod
    def create(cls, options, expected=()):
        return cls(expected, **options)

    def read(self):
        now_s = time.monotonic()
        elapsed_s, self.time_s = now_s - self.time_s, now_s
        moved = np.clip(self.target - self.pos, -self.speed * elapsed_s, self.speed * elapsed_s)
        self.pos, self.sequence = self.pos + moved, self.sequence + 1
        still, upright = np.zeros(12), np.array([1.0, 0.0, 0.0, 0.0])
        return State(self.sequence, now_s, now_s, self.pos, moved / elapsed_s, still, np.zeros(3), upright)

    def send(self, command):
        self.target = np.where(command.kp > 0, command.position, self.pos)
        with self.file.open("a") as file:
            print(command.kp.max(), command.kd.max(), file=file)
        return command

    def __exit__(self, *exc):
        self.send(Command.damping(12))
'''


@in_real_time
def test_a_policy_runs_on_a_driver_of_ones_own_and_leaves_it_in_damping(folder, tmp_path, capsys):
    (tmp_path / "drivers").mkdir()
    (tmp_path / "drivers" / "my_dog.py").write_text(DRIVER)
    path = os.pathsep.join([str(tmp_path / "drivers"), str(Path(__file__).parents[2] / "src")])
    command = [sys.executable, "-m", "body_transformer.cli.main", "deploy", str(folder), "--robot", "my_dog:Dog"]
    command += ["--robot-options", "speed=10", f"file={tmp_path / 'gains'}", "--seconds", "0.3", "--json"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "log"), "--stale-ms", "1000"],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["robot"], said["stop"], said["report"]) == ("my_dog:Dog", None, None)
    assert said["policy_seconds"] == pytest.approx(0.3)
    log = SavedLog.load(tmp_path / "log").description
    assert (log.robot, log.joints, log.robot_joints) == ("my_dog:Dog", JOINTS, JOINTS[::-1])
    assert log.loop_hz == log.policy_hz == 50  # the default of `Robot.loop_hz`
    gains = [tuple(map(float, line.split())) for line in (tmp_path / "gains").read_text().splitlines()]
    assert len(gains) >= said["ticks"]
    assert max(gains) == (100.0, 1.0)
    assert gains[-1] == (0.0, 5.0)
    assert main(["deploy", str(folder), "--replay", str(tmp_path / "log")]) == 0
    assert f"all {said['ticks']} commands are those of" in capsys.readouterr().out
