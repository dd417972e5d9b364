"""Training: the loss falls, equal seeds give equal bits, and interruptions change nothing."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from body_transformer.checkpoint import newest_checkpoint
from body_transformer.cli.main import main
from body_transformer.experiment import load_experiment
from body_transformer.imitation.config import ImitationConfig
from body_transformer.imitation.train import learning_rate, total_steps

from ..forks import forking, is_at_work

LAYOUT = load_experiment("demo").layout()
SMALL = ["--policy.num-layers", "1", "--policy.embed-dim", "8", "--policy.ff-dim", "8"]
FINAL_FILES = ("policy.safetensors", "policy.json", "training_state.safetensors", "training_state.json")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Twelve episodes whose actions are a linear function of the observation."""
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((600, LAYOUT.obs_dim)).astype(np.float32)
    weights = rng.standard_normal((LAYOUT.obs_dim, LAYOUT.action_dim)).astype(np.float32) / LAYOUT.obs_dim**0.5
    file = tmp_path_factory.mktemp("data") / "linear.npz"
    np.savez(file, obs=obs, actions=obs @ weights, episode_ends=np.arange(50, 601, 50))
    return file


def command(data: Path, out: Path, *more: str) -> list[str]:
    known = ["--imitation.reader", "npz", "--imitation.data", str(data)]
    return ["train", "demo", *SMALL, *known, "--out", str(out), "--cpu", "--no-eval", "--quiet", *more]


def steps(number: int) -> list[str]:
    return ["--imitation.num-steps", str(number), "--imitation.batch-size", "32", "--imitation.log-every", "10"]


def final_bytes(run: Path) -> list[bytes]:
    return [(run / "checkpoints" / "last" / name).read_bytes() for name in FINAL_FILES]


def losses(run: Path) -> list[tuple[int, float]]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [(line["step"], line["train/loss"]) for line in lines]


@pytest.fixture(scope="module")
def bot(tmp_path_factory):
    modules = ("cli.train", "imitation.actors", "imitation.demonstrations", "imitation.train")
    with forking(tmp_path_factory.mktemp("bot") / "output.txt", modules) as bot:
        yield bot


def test_training_lowers_the_loss_and_logs_it(data, tmp_path):
    run = tmp_path / "run"
    assert main(command(data, run, *steps(120), "--imitation.learning-rate", "0.01")) == 0
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(10, 121, 10))
    assert lines[-1]["train/loss"] < 0.7 * lines[0]["train/loss"]
    assert all(line["time_s"] > 0 and line["epoch"] == line["step"] / 19 for line in lines)
    assert newest_checkpoint(run).step == 120
    assert any(file.name.startswith("events.out.tfevents") for file in run.iterdir())


def test_the_same_command_twice_gives_the_same_bits(data, tmp_path):
    for name in "ab":
        assert main(command(data, tmp_path / name, *steps(40))) == 0
    assert final_bytes(tmp_path / "a") == final_bytes(tmp_path / "b")
    assert main(command(data, tmp_path / "c", *steps(40), "--seed", "1")) == 0
    assert final_bytes(tmp_path / "a")[0] != final_bytes(tmp_path / "c")[0]


def test_a_run_killed_twenty_times_ends_like_an_uninterrupted_one(bot, data, tmp_path):
    bot.start(command(data, tmp_path / "whole", *steps(2000)))
    assert bot.wait()[0] == 0
    run, moments = tmp_path / "killed", random.Random(0)
    arguments = command(data, run, *steps(2000), "--imitation.checkpoint-every-s", "0.01")
    for _ in range(20):
        pid = bot.start(arguments)
        while not is_at_work(run, pid):
            os.kill(pid, 0)  # it is alive
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.4))
        os.kill(pid, signal.SIGKILL)
        assert bot.wait()[0] == -signal.SIGKILL
        arguments = ["train", "--resume", str(run), "--cpu", "--no-eval", "--quiet"]
    description = (run / "experiment.yaml").read_text()  # the rest saves rarely, which is faster
    (run / "experiment.yaml").write_text(description.replace("checkpoint_every_s: 0.01", "checkpoint_every_s: 120.0"))
    bot.start(arguments)
    assert bot.wait()[0] == 0
    assert final_bytes(run) == final_bytes(tmp_path / "whole")
    assert losses(run) == losses(tmp_path / "whole")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_writes_a_checkpoint_and_explains_how_to_resume(bot, data, tmp_path, number):
    run = tmp_path / "run"
    pid = bot.start(command(data, run, *steps(1_000_000)))
    while not (run / "metrics.jsonl").exists():
        os.kill(pid, 0)  # it is alive
        time.sleep(0.05)
    time.sleep(0.2)
    os.kill(pid, number)
    status, words = bot.wait()
    assert status == 128 + number, words
    assert "continue with --resume" in words
    assert newest_checkpoint(run).step > 0


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_earlier_checkpoints(data, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(command(data, run, *steps(20))) == 0
    description = (run / "experiment.yaml").read_text()
    (run / "experiment.yaml").write_text(
        description.replace("num_steps: 20", "num_steps: 90").replace("learning_rate: 0.001", "learning_rate: 1.0e+38")
    )
    assert main(["train", "--resume", str(run), "--cpu", "--no-eval", "--quiet"]) == 1
    assert "the loss is" in capsys.readouterr().err
    assert newest_checkpoint(run).step == 20


def test_two_processes_have_the_loss_of_one_and_leave_no_threads(data, tmp_path):
    """A thread of the process group that remains could end the interpreter with SIGABRT."""
    one, two = tmp_path / "one", tmp_path / "two"
    assert main(command(data, one, *steps(30))) == 0
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = Path(__file__).parents[1] / "training" / "threads_left.py"
    subprocess.run(
        [*torchrun, str(script), str(tmp_path), *command(data, two, *steps(30))],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert [loss for _, loss in losses(one)] == pytest.approx([loss for _, loss in losses(two)], rel=1e-5)
    assert [(tmp_path / f"threads{rank}.txt").read_text() for rank in (0, 1)] == ["", ""]


def test_an_existing_run_is_not_overwritten(data, tmp_path, capsys):
    arguments = command(data, tmp_path / "run", *steps(10))
    assert main(arguments) == 0
    assert main(arguments) == 1
    assert "already holds a run: continue it with --resume" in capsys.readouterr().err


def test_a_folder_with_other_files_is_refused(data, tmp_path, capsys):
    assert main(command(tmp_path / "no-data.npz", data.parent)) == 1  # before the data are read
    assert "is not a run folder, and it is not empty: give another --out" in capsys.readouterr().err
    assert [file.name for file in data.parent.iterdir()] == [data.name]


def test_a_corrupt_checkpoint_is_reported_and_the_previous_one_used(bot, data, tmp_path):
    run = tmp_path / "run"
    often = ["--imitation.checkpoint-every-s", "1e-6", "--imitation.keep-checkpoints", "2"]
    assert main(command(data, run, *steps(20), *often)) == 0
    broken = run / "checkpoints" / "20"
    (broken / "training_state.safetensors").write_bytes(b"")
    bot.start(["train", "--resume", str(run), "--quiet"])
    status, words = bot.wait()
    assert status == 0
    assert f"bot train: checkpoint {broken} cannot be used: " in words
    assert "Warning" not in words
    assert newest_checkpoint(run).step == 20


def test_a_folder_that_cannot_be_written_is_named_before_training(data, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(command(data, tmp_path / "file" / "run", *steps(10))) == 1
    assert str(tmp_path / "file") in capsys.readouterr().err


@pytest.mark.parametrize("kilobytes", [4, 8, 16, 64, 80, 120])
def test_a_full_disk_is_one_sentence_and_leaves_whole_files(data, small_disk, capsys, kilobytes):
    run = small_disk(kilobytes) / "run"
    assert main(command(data, run, *steps(40), "--imitation.checkpoint-every-s", "0.001")) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1
    assert re.match(rf"bot train: .*{run}/.*No space left on device", errors[0])
    check_whole(run)


LIMITED = """
import resource, sys
from body_transformer.cli.main import main

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("limit", [1000, 20_000])
def test_a_file_that_may_not_grow_is_one_sentence_and_leaves_whole_files(data, tmp_path, limit):
    run = tmp_path / "run"
    process = subprocess.run(
        [sys.executable, "-c", LIMITED, str(limit), *command(data, run, *steps(40))],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.returncode == 1
    assert re.fullmatch(rf"bot train: .*{run}/.*File too large.*\n", process.stderr)
    check_whole(run)


def check_whole(run: Path) -> None:
    """Check that the files of a run that could not be written are complete or absent."""
    if (run / "metrics.jsonl").exists():
        for line in (run / "metrics.jsonl").read_text().splitlines(keepends=True):
            assert line.endswith("\n")
            json.loads(line)
    assert [file.name for file in run.rglob(".*")] in ([], [".at_work"])
    newest_checkpoint(run)  # warns about an incomplete one


def test_a_run_deleted_during_training_is_one_sentence_and_is_not_made_again(bot, data, tmp_path):
    run = tmp_path / "run"
    pid = bot.start(command(data, run, *steps(1_000_000)))
    while not (run / "metrics.jsonl").exists():
        os.kill(pid, 0)  # it is alive
        time.sleep(0.05)
    shutil.rmtree(run)
    assert bot.wait() == (1, f"bot train: cannot write '{run}/metrics.jsonl': it has been deleted\n")
    assert not run.exists()


def test_missing_data_are_named_before_training(tmp_path, capsys):
    assert main(command(tmp_path / "nowhere.npz", tmp_path / "run", *steps(10))) == 1
    assert "nowhere.npz" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_keeps_its_settings(data, tmp_path, monkeypatch):
    run = tmp_path / "run"
    assert main(command(data, run, *steps(10))) == 0  # with --cpu and --no-eval
    description = (run / "experiment.yaml").read_text()
    (run / "experiment.yaml").write_text(description.replace("num_steps: 10", "num_steps: 20"))
    jobs = []
    monkeypatch.setattr("body_transformer.imitation.train.train", lambda job, progress: jobs.append(job))
    assert main(["train", "--resume", str(run), "--quiet"]) == 0
    assert jobs[0].cpu
    assert jobs[0].task is None


def test_a_loss_that_does_not_fit_the_policy_is_refused_before_the_run_is_created(data, tmp_path, capsys):
    assert main(command(data, tmp_path / "run", *steps(10), "--imitation.loss", "likelihood")) == 1
    assert main(command(data, tmp_path / "run", *steps(10), "--policy.head", "gaussian")) == 1
    words = capsys.readouterr().err
    assert "needs a policy with a Gaussian head" in words
    assert "loss 'mse' does not train a learned std" in words
    assert not (tmp_path / "run").exists()


def test_the_learning_rate_rises_then_falls():
    config = ImitationConfig("npz", num_steps=100, learning_rate=1.0, warmup_steps=10, schedule="cosine")
    rates = [learning_rate(config, step, 100) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == 1.0
    assert rates[55] == pytest.approx(0.5)
    assert rates[100] == pytest.approx(0.0)
    assert sorted(rates[10:], reverse=True) == rates[10:]
    constant = ImitationConfig("npz", num_steps=100, learning_rate=0.3)
    assert {learning_rate(constant, step, 100) for step in range(100)} == {0.3}


def test_the_number_of_steps_counts_the_smaller_last_batch_of_an_epoch():
    assert total_steps(ImitationConfig("npz", num_epochs=3, batch_size=32), 600) == 3 * 19
    assert total_steps(ImitationConfig("npz", num_steps=7), 600) == 7
