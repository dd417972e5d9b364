"""Collecting, training, evaluating and reporting, with the real commands and simulator."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("gymnasium_robotics", reason="needs the extra 'imitation'")
pytest.importorskip("minari", reason="needs the extra 'imitation'")

from body_transformer import Policy
from body_transformer.checkpoint import newest_checkpoint
from body_transformer.cli.main import main
from body_transformer.experiment import load_experiment

SMALL = ["--policy.num-layers", "1", "--policy.embed-dim", "20", "--policy.ff-dim", "16"]


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory) -> Path:
    """Two episodes of an untrained policy."""
    folder = tmp_path_factory.mktemp("adroit")
    experiment = load_experiment("adroit-door")
    Policy(experiment.layout(), experiment.policy_config("mlp")).save(folder / "policy")
    command = ["collect", "adroit-door", "--policy", str(folder / "policy"), "--episodes", "2"]
    assert main([*command, "--out", str(folder / "demonstrations")]) == 0
    return folder / "demonstrations"


@pytest.fixture(scope="module")
def run(demonstrations, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "adroit-door" / "bot-hard" / "seed0"
    few = ["--imitation.num-epochs", "3", "--imitation.eval-every", "2", "--imitation.eval-episodes", "1"]
    data = ["--imitation.data", str(demonstrations), "--imitation.num-demos", "1", "--out", str(folder)]
    assert main(["train", "adroit-door", *SMALL, *few, *data, "--cpu", "--quiet"]) == 0
    return folder


def test_a_demonstration_shorter_than_a_batch_is_one_batch(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 3]  # an evaluation after two epochs, the loss at the end
    assert "eval/validation/success" in lines[0]
    assert lines[1]["train/loss"] > 0


def test_the_final_evaluation_has_the_papers_metrics(run):
    found = json.loads((run / "evaluation.json").read_text())["splits"]["validation"]
    assert list(found) == ["success", "success_any", "total_reward"]
    assert found["success"] == {"mean": 0.0, "low": 0.0, "high": 0.0, "num_episodes": 1}


def test_an_evaluation_is_reproducible(run, capsys):
    assert main(["eval", str(run), "--episodes", "1", "--split", "validation", "--json", "--cpu"]) == 0
    again = json.loads(capsys.readouterr().out)["splits"]["validation"]
    assert again == json.loads((run / "evaluation.json").read_text())["splits"]["validation"]


def test_a_trained_policy_can_be_collected_from_and_reported(run, tmp_path):
    assert (
        main(["collect", "adroit-door", "--policy", str(run), "--episodes", "1", "--out", str(tmp_path / "more")]) == 0
    )
    assert main(["report", str(run.parents[1]), "--out", str(tmp_path / "page.html")]) == 0
    assert "adroit-door" in (tmp_path / "page.html").read_text()


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_a_stop_signal_to_the_whole_group_spares_the_simulators(demonstrations, tmp_path):
    run = tmp_path / "run"
    often = ["--imitation.num-epochs", "100000", "--imitation.eval-every", "1", "--imitation.eval-episodes", "2"]
    data = ["--imitation.data", str(demonstrations), "--out", str(run), "--cpu", "--quiet"]
    process = subprocess.Popen(
        [sys.executable, "-m", "body_transformer.cli.main", "train", "adroit-door", *SMALL, *often, *data],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )
    while process.poll() is None and not ((run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_text()):
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGTERM)
    _, words = process.communicate(timeout=120)
    assert (process.returncode, "continue with --resume" in words) == (143, True), words
    assert newest_checkpoint(run).step > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "sideways"], "unknown split 'sideways'; have: 'validation'"),
        (["--episodes", "0"], "--episodes must be 1 or more"),
        (["--video", "film.avi"], "unknown film format '.avi'"),
    ],
)
def test_bad_arguments_of_an_evaluation_are_refused(run, capsys, arguments, message):
    assert main(["eval", str(run), "--episodes", "1", "--cpu", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_a_folder_without_a_policy_is_named(tmp_path, capsys):
    assert main(["eval", str(tmp_path)]) == 1
    assert "policy.json is missing; expected a folder with policy.json, a run folder" in capsys.readouterr().err
