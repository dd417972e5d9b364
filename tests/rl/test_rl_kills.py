"""A training by PPO on a CPU that is stopped or killed continues as if it had never stopped, bit for bit.

Continuous integration kills the smallest task three times. `--kills 20` kills every task listed here twenty times.
"""

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

pytest.importorskip("mjlab", reason="needs the extra 'rl'")

from body_transformer.checkpoint import newest_checkpoint

from ..forks import Bot, forking

SMALL = ("--policy.num-layers", "1", "--policy.embed-dim", "8", "--policy.ff-dim", "8")
QUICK = ("num-envs", 4, "num-steps-per-env", 8, "num-mini-batches", 2, "num-learning-epochs", 2, "eval-episodes", 2)
ITERATIONS_PER_KILL, MAX_S = 15, 0.7
"""A killed training has at most MAX_S seconds for its iterations, of which it must not finish all."""
TASKS = {
    "humanoid-mod": (),
    "humanoid-hill": (),
    "humanoid-board": (),
    "a1-walk": ("--rl.options", "latency", "[0, 4]", "push_every_s", "0.2"),
    "mjlab:Mjlab-Cartpole-Balance": ("--rl.random-initial-step",),
    "mjlab:Mjlab-Velocity-Flat-Unitree-Go1": ("--rl.random-initial-step",),
}
FINAL = ("policy.safetensors", "policy.json", "training_state.safetensors")


@pytest.fixture(scope="module")
def bot(tmp_path_factory):
    modules = ("cli.train", "rl.train", "rl.envs.fast")
    with forking(tmp_path_factory.mktemp("bot") / "output.txt", modules) as bot:
        yield bot


def command(task: str, out: Path, iterations: int, checkpoint_every_s: float) -> list[str]:
    settings = dict(zip(QUICK[::2], QUICK[1::2], strict=True)) | {"max-iterations": iterations, "eval-every": 25}
    settings["checkpoint-every-s"] = checkpoint_every_s
    flags = [word for name, value in settings.items() for word in (f"--rl.{name}", str(value))]
    return ["train", task, *SMALL, *flags, *TASKS[task], "--cpu", "--quiet", "--out", str(out)]


def modified(file: Path) -> int:
    return file.stat().st_mtime_ns if file.exists() else 0


def kill_at(bot: Bot, arguments: list[str], run: Path, seconds: float) -> None:
    """Start a training and kill it some seconds after its first iteration has begun."""
    before = modified(run / "metrics.jsonl")
    pid = bot.start(arguments)
    while modified(run / "metrics.jsonl") == before:
        os.kill(pid, 0)  # it is alive
        time.sleep(0.01)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    assert bot.wait()[0] == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_writes_a_checkpoint_and_explains_how_to_resume(bot, tmp_path, number):
    run = tmp_path / "run"
    pid = bot.start(command("humanoid-mod", run, 100_000, checkpoint_every_s=120.0))
    while not modified(run / "metrics.jsonl"):
        os.kill(pid, 0)  # it is alive
        time.sleep(0.01)
    os.kill(pid, number)
    status, words = bot.wait()
    assert status == 128 + number, words
    assert f"continue with --resume {run}" in words
    assert newest_checkpoint(run).step > 0


def test_a_run_deleted_during_training_is_one_sentence_and_is_not_made_again(bot, tmp_path):
    run = tmp_path / "run"
    pid = bot.start(command("humanoid-mod", run, 100_000, checkpoint_every_s=120.0))
    while not modified(run / "metrics.jsonl"):
        os.kill(pid, 0)  # it is alive
        time.sleep(0.01)
    shutil.rmtree(run)
    status, words = bot.wait()
    assert status == 1
    assert words.endswith(f"bot train: cannot write '{run}/metrics.jsonl': it has been deleted\n")
    assert "Traceback" not in words
    assert not run.exists()


@pytest.mark.parametrize("task", TASKS)
def test_a_killed_training_ends_like_an_uninterrupted_one(bot, tmp_path, kills, task):
    if kills < 20 and task != next(iter(TASKS)):
        pytest.skip("every task is killed with --kills 20")
    iterations, moments = ITERATIONS_PER_KILL * kills, random.Random(task)
    whole, run = tmp_path / "whole", tmp_path / "killed"
    bot.start(command(task, whole, iterations, checkpoint_every_s=120.0))
    assert bot.wait()[0] == 0
    arguments = command(task, run, iterations, checkpoint_every_s=0.01)
    for _ in range(kills):
        kill_at(bot, arguments, run, moments.uniform(0, MAX_S))
        arguments = ["train", "--resume", str(run), "--cpu", "--quiet"]
    bot.start([*arguments, "--rl.checkpoint-every-s", "120"])
    status, words = bot.wait()
    assert status == 0
    assert "continues in new episodes" not in words
    for name in FINAL:
        expected, found = ((folder / "checkpoints/last" / name) for folder in (whole, run))
        if found.read_bytes() != expected.read_bytes() and name.endswith("safetensors"):
            tensors, others = load_file(expected), load_file(found)
            assert [key for key in tensors if not tensors[key].equal(others[key])] == []
        assert found.read_bytes() == expected.read_bytes(), name
    assert (run / "evaluation.json").read_text() == (whole / "evaluation.json").read_text()
