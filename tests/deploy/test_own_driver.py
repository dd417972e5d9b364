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
from pathlib import Path

from driver import Example


class Dog(Example):
    """The example with its joints in reverse; each command's largest gains are a line of a file."""

    loop_hz = None

    @classmethod
    def create(cls, options, expected=()):
        dog = cls(tuple(reversed(expected)), options["speed"])
        dog.file = Path(options["file"])
        return dog

    def send(self, command):
        with self.file.open("a") as file:
            print(command.kp.max(), command.kd.max(), file=file)
        return super().send(command)
'''


@in_real_time
def test_a_policy_runs_on_a_driver_of_ones_own_and_leaves_it_in_damping(folder, tmp_path, capsys):
    (tmp_path / "drivers").mkdir()
    (tmp_path / "drivers" / "my_dog.py").write_text(DRIVER)
    root = Path(__file__).parents[2]
    path = os.pathsep.join(map(str, (tmp_path / "drivers", root / "src", root / "examples")))
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
