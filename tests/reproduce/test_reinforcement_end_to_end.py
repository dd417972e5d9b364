"""`bot reproduce rl` by the real command: killed in the middle and started again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("mjlab", reason="needs the extra 'rl'")

BOT = [sys.executable, "-m", "body_transformer.cli.main", "reproduce", "rl", "--only", "humanoid-mod/mlp"]
QUICK = [
    "--cpu",
    "--policy.mlp-dim",
    "8",
    "--rl.num-envs",
    "2",
    "--rl.num-steps-per-env",
    "2",
    "--rl.num-mini-batches",
    "2",
]
QUICK += [
    "--rl.num-learning-epochs",
    "1",
    "--rl.max-iterations",
    "80",
    "--rl.eval-every",
    "40",
    "--rl.eval-episodes",
    "2",
]
QUICK += ["--rl.checkpoint-every-s", "0.2"]


def begin(out: Path) -> subprocess.Popen[str]:
    args = [*BOT, "--seeds", "2", "--out", str(out), "--json", "--", *QUICK]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MUJOCO_GL": "disabled"}
    return subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def steps(folder: Path) -> list[int]:
    file = folder / "metrics.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.is_file() else []
    return [json.loads(line)["step"] for line in lines]


def kill(process: subprocess.Popen[str], run: Path) -> None:
    """Kill the command and the training that it started, as a power failure would."""
    trainer = int((run / ".at_work").read_text())
    process.kill()
    os.kill(trainer, signal.SIGKILL)
    process.communicate()


def test_a_killed_study_resumes_and_repeats_nothing(tmp_path):
    first, second = (tmp_path / "humanoid-mod" / "mlp" / f"seed{seed}" for seed in (0, 1))
    process = begin(tmp_path)
    until = time.monotonic() + 240
    while not (any((second / "checkpoints").glob("[1-9]*")) and steps(second)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)
    kill(process, second)
    assert (first / "evaluation.json").is_file()
    assert not (second / "evaluation.json").exists()
    reached = max(int(path.name) for path in (second / "checkpoints").glob("[1-9]*"))
    assert reached < 80
    before = {file: file.stat().st_mtime_ns for file in first.iterdir()}

    words, complaints = begin(tmp_path).communicate(timeout=240)
    assert words, complaints
    assert json.loads(words) == {"files": [str(tmp_path / name) for name in ("rl.md", "rl.png")], "finished": 2}
    assert {file: file.stat().st_mtime_ns for file in first.iterdir()} == before
    assert (second / "evaluation.json").is_file()
    assert steps(second) == sorted([*range(1, 81), 40, 80])
    assert "| humanoid-mod | mlp | 2 | 0.00032 M |" in (tmp_path / "rl.md").read_text()
