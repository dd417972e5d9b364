"""`bot reproduce rl` by the real command: killed in the middle and started again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from body_transformer.cli.main import main

pytest.importorskip("mjlab", reason="needs the extra 'rl'")

REPRODUCE = ("reproduce", "rl", "--only", "humanoid-mod/mlp", "--seeds", "1", "--json")
SMALL = {"num-envs": 2, "num-steps-per-env": 2, "num-mini-batches": 2, "num-learning-epochs": 1, "max-iterations": 80}
SMALL |= {"eval-every": 40, "eval-episodes": 2, "checkpoint-every-s": 0.2}
QUICK = ["--cpu", "--policy.mlp-dim=8", *(f"--rl.{key}={value}" for key, value in SMALL.items())]


def steps(folder: Path) -> list[int]:
    file = folder / "metrics.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.is_file() else []
    return [json.loads(line)["step"] for line in lines]


def checkpoints(folder: Path) -> list[int]:
    return [int(path.name) for path in (folder / "checkpoints").glob("[1-9]*")]


def test_a_killed_study_resumes_and_a_finished_one_repeats_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    args = [*REPRODUCE, "--out", str(tmp_path), "--", *QUICK]
    run = tmp_path / "humanoid-mod" / "mlp" / "seed0"
    command = [sys.executable, "-m", "body_transformer.cli.main", *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        until = time.monotonic() + 240
        while not (checkpoints(run) and steps(run)):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.02)
        trainer = int((run / ".at_work").read_text())
        process.kill()  # the command and the training that it started, as by a power failure
        os.kill(trainer, signal.SIGKILL)
    assert not (run / "evaluation.json").exists()
    assert max(checkpoints(run)) < 80

    found = {"files": [str(tmp_path / name) for name in ("rl.md", "rl.png")], "finished": 1}
    assert main(args) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert steps(run) == sorted([*range(1, 81), 40, 80])
    assert "| humanoid-mod | mlp | 1 | 0.00032 M |" in (tmp_path / "rl.md").read_text()
    before = {file: file.stat().st_mtime_ns for file in (*run.iterdir(), *run.glob("checkpoints/*/*"))}
    assert main(args) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert {file: file.stat().st_mtime_ns for file in (*run.iterdir(), *run.glob("checkpoints/*/*"))} == before
