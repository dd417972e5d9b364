"""`bot demo`, with few steps."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from body_transformer.cli.main import main

FEW = ["--steps", "6", "--episodes", "2", "--jobs", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("demo")
    with redirect_stdout(StringIO()) as said:
        assert main(["demo", *FEW, "--out", str(out)]) == 0
    (out / "said.txt").write_text(said.getvalue())
    return out


def test_it_trains_four_policies_and_writes_a_page(folder):
    for name in ("bot-hard", "transformer", "mlp", "mlp-equal-time"):
        run = folder / name / "seed0"
        assert json.loads((run / "evaluation.json").read_text())["num_episodes"] == 2
        assert (run / "film.webp").stat().st_size > 1000
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Why this task suits a body mask" in page
    assert page.count("data:image/webp") == 4


def test_the_table_has_the_means_and_intervals_of_the_evaluations(folder):
    rows = (folder / "said.txt").read_text().splitlines()[1:5]
    assert [row[:17].strip() for row in rows] == ["bot-hard", "mlp", "transformer", "mlp, equal time"]
    splits = json.loads((folder / "mlp" / "seed0" / "evaluation.json").read_text())["splits"]
    cells = [splits[name]["normalized_length"] for name in ("train", "validation", "unseen-tilt")]
    assert re.findall(r"\S+ \(.*?\)", rows[1]) == [
        f"{c['mean']:.3f} ({c['low']:.3f} to {c['high']:.3f})" for c in cells
    ]


def test_the_mlp_is_also_trained_for_the_time_of_bot_hard(folder):
    plan = json.loads((folder / "equal_time.json").read_text())
    seconds = plan["seconds_a_step"]
    for name in ("bot-hard", "mlp"):
        lines = (folder / name / "seed0" / "metrics.jsonl").read_text().splitlines()
        last = [line for line in map(json.loads, lines) if "train/loss" in line][-1]
        assert seconds[name] == pytest.approx(last["time_s"] / last["step"])
    assert plan["steps"] == max(1, round(6 * seconds["bot-hard"] / seconds["mlp"]))
    checkpoints = folder / "mlp-equal-time" / "seed0" / "checkpoints"
    assert (checkpoints / "last").resolve().name.lstrip("0") == str(plan["steps"])


def test_finished_runs_are_not_repeated(folder, capsys):
    before = {file: file.stat().st_mtime_ns for file in folder.glob("*/seed0/evaluation.json")}
    assert main(["demo", *FEW, "--out", str(folder), "--json"]) == 0
    assert {file: file.stat().st_mtime_ns for file in folder.glob("*/seed0/evaluation.json")} == before
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert list(runs) == ["bot-hard", "mlp", "transformer", "mlp, equal time"]
    assert set(runs["mlp"]) == {"train", "validation", "unseen-tilt"}


def test_runs_with_another_number_of_steps_are_refused(folder, capsys):
    assert main(["demo", "--steps", "7", "--episodes", "2", "--out", str(folder)]) == 1
    assert "a run with other arguments" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_stops_the_runs_after_they_write_checkpoints(folder, tmp_path, number):
    shutil.copy(folder / "demonstrations.npz", tmp_path)
    command = [sys.executable, "-m", "body_transformer.cli.main", "demo", "--episodes", "2", "--out", str(tmp_path)]
    process = subprocess.Popen([*command, "--steps", "100000"], stderr=subprocess.PIPE, text=True)
    run = tmp_path / "bot-hard" / "seed0"
    try:
        while not ((run / "metrics.jsonl").is_file() and (run / "metrics.jsonl").stat().st_size):
            assert process.poll() is None
            time.sleep(0.1)
        os.kill(process.pid, number)
        _, words = process.communicate(timeout=90)
    finally:
        process.terminate()
    assert process.returncode == 128 + number
    assert "stopped" in words
    assert list((run / "checkpoints").glob("[0-9]*"))
    with pytest.raises(ProcessLookupError):
        os.kill(int((run / ".at_work").read_text()), 0)


def test_numbers_below_one_are_refused(capsys, tmp_path):
    assert main(["demo", "--seeds", "0", "--out", str(tmp_path)]) == 1
    assert "--seeds must be 1 or more; got 0" in capsys.readouterr().err
