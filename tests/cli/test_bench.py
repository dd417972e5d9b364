"""`bot bench`: quick runs, JSON, files and errors."""

import importlib.util
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from body_transformer.cli import bench
from body_transformer.cli.bench_options import find_device
from body_transformer.cli.main import main

FILES = ["chart.png", "results.json", "table.md"]
RL = pytest.mark.skipif(importlib.util.find_spec("mjlab") is None, reason="needs the extra 'rl'")
ENVIRONMENT = {"device", "date", "command", "body_transformer", "python", "torch", "triton", "numpy", "onnxruntime"}


@pytest.fixture
def run_json(capfd: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Return a function that runs a benchmark and returns its only output, one JSON object."""

    def run(*args: str) -> dict[str, Any]:
        args = (*args, "--device", "cpu", "--quick", "--json")
        assert main(["bench", *args]) == 0
        content: dict[str, Any] = json.loads(capfd.readouterr().out)
        assert set(content) == {"bench", "environment", "tables", "notes"}
        assert set(content["environment"]) >= ENVIRONMENT
        assert content["environment"]["command"] == shlex.join(["bot", "bench", *args])
        return content

    return run


def test_attention_times_all_contenders_against_the_floor_and_writes_its_files(run_json, tmp_path: Path) -> None:
    content = run_json("attention", "--out", str(tmp_path))
    assert sorted(file.name for file in tmp_path.iterdir()) == FILES
    assert json.loads((tmp_path / "results.json").read_text()) == content
    rows = content["tables"]["attention"]["rows"]
    assert [(row["row"], row["pass"]) for row in rows[:2]] == [("4x2x16x32", "fwd"), ("4x2x16x32", "fwd+bwd")]
    for row in rows:
        assert all(row[name] > 0 for name in ("sdpa_unmasked", "sdpa", "naive", "gather", "ours", "reference", "floor"))
        assert row["neighbours"] > 0
        assert row["best_peer_ms"] == min(row["sdpa"], row["naive"], row["gather"])
        assert row["speedup"] == pytest.approx(row["best_peer_ms"] / row["ours"])
        assert row["over_floor"] == pytest.approx(row["ours"] / row["floor"])
        assert row["chosen"] in ("reference", "neighbours")
    scaling = content["tables"]["scaling"]["rows"]
    assert [row["nodes"] for row in scaling] == [128, 256]
    for row in scaling:
        assert row["both_floor_ns"] == pytest.approx(3 * row["forward_floor_ns"])
        assert row["over_floor"] == pytest.approx(row["both_ns"] / row["both_floor_ns"])
    assert len(content["notes"]) == 1, "no contender failed"


def test_encoder_times_whole_steps_and_compares_errors(run_json, tmp_path: Path) -> None:
    content = run_json("encoder", "--out", str(tmp_path))
    assert sorted(file.name for file in tmp_path.iterdir()) == FILES
    assert list(content["tables"]) == ["ppo", "rollout", "policy", "imitation", "errors"]
    for name in ("ppo", "rollout", "policy", "imitation"):
        rows = content["tables"][name]["rows"]
        assert rows[-1]["contender"] == "ours"
        assert rows[-1]["over_ours"] == 1
        assert all(row["ms"] > 0 and row["floor"] > 0 and row["timed"] == "clock" for row in rows)
    errors = content["tables"]["errors"]["rows"]
    assert [row["quantity"] for row in errors] == ["output", "worst gradient"]
    assert all(row["ours"] < 1e-5 for row in errors)


def test_one_part_of_the_encoder_can_be_timed_without_peers(run_json) -> None:
    content = run_json("encoder", "--rows", "ppo", "--no-peers")
    assert list(content["tables"]) == ["ppo", "rollout"]
    assert [row["contender"] for row in content["tables"]["ppo"]["rows"]] == ["ours"]


def test_latency_has_percentiles_and_floors_for_each_experiment(run_json, tmp_path: Path) -> None:
    content = run_json("latency", "--out", str(tmp_path))
    assert sorted(file.name for file in tmp_path.iterdir()) == FILES
    rows = content["tables"]["latency"]["rows"]
    assert [(row["experiment"], row["variant"]) for row in rows] == [
        ("a1-walk", "bot-mix"),
        ("humanoid-mod", "bot-mix"),
    ]
    for row in rows:
        assert 0 < row["eager_p50"] <= row["eager_p99"]
        assert row["floor"] == max(row["arithmetic_ms"], row["weights_ms"]) > 0


@RL
def test_ppo_times_environments_iterations_and_their_parts(run_json, tmp_path: Path) -> None:
    content = run_json("ppo", "--variants", "mlp", "bot-hard", "--out", str(tmp_path))
    assert sorted(file.name for file in tmp_path.iterdir()) == FILES
    assert list(content["tables"]) == ["environment", "iteration", "parts"]
    environment, iteration, parts = (table["rows"] for table in content["tables"].values())
    assert [row["num_envs"] for row in environment] == [4, 8]
    for row in environment:
        assert row["steps_per_s"] == pytest.approx(row["num_envs"] / row["step_ms"] * 1e3)
    assert [row["variant"] for row in iteration] == ["mlp", "bot-hard"]
    for row in iteration:
        assert row["total_ms"] == pytest.approx(row["collect_ms"] + row["learn_ms"])  # of one round
        assert row["ratio"] == pytest.approx(row["total_ms"] / iteration[0]["total_ms"])
        assert row["steps_per_s"] == pytest.approx(8 * 4 / row["total_ms"] * 1e3)
    for row in parts:
        spent = [row[f"{part}_ms"] for part in ("physics", "terms", "act", "gradients", "optimizer", "rest")]
        assert sum(spent) == pytest.approx(row["total_ms"])
        assert all(time > 0 for time in spent[:-1])


def test_without_json_there_are_tables_under_a_header_with_the_command() -> None:
    """In a new process, as a user runs it: without Triton's interpreter and with one thread."""
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"} | {"OMP_NUM_THREADS": "1"}
    args = ["bench", "attention", "--quick", "--device", "cpu", "--rows", "scaling", "--no-peers"]
    command = [sys.executable, "-m", "body_transformer.cli.main", *args]
    result = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    assert result.returncode == 0, result.stderr
    assert f"command bot {' '.join(args)}" in " ".join(result.stdout.split())
    assert "cost per node" in result.stdout
    assert "scaling 128 nodes fp32: ours fwd" in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["attention", "--device", "vax"], "unknown device 'vax'; have: 'cpu', 'cuda'"),
        (["attention", "--device", "cpu", "--rows", "1x1"], "unknown row '1x1';"),
        (["attention", "--device", "cpu", "--dtypes", "fp64"], "unknown dtype on cpu 'fp64'; have: 'fp32'"),
        (["attention", "--device", "cpu", "--dtypes", "bf16"], "unknown dtype on cpu 'bf16'; have: 'fp32'"),
        (["attention", "--device", "cpu", "--compile-workers", "-1"], "--compile-workers must be 0 or more; got -1"),
        (["encoder", "--device", "cpu", "--rows", "pp"], "unknown row 'pp'; did you mean 'ppo'?"),
        (["latency", "--device", "cpu", "--rows", "a1"], "unknown experiment 'a1';"),
        (["latency", "--device", "cpu", "--variant", "bot"], "unknown variant 'bot';"),
        pytest.param(
            ["ppo", "--device", "cpu", "--task", "demo"], "unknown experiment 'demo'; have: 'humanoid-mod'", marks=RL
        ),
        pytest.param(["ppo", "--device", "cpu", "--variants", "bot"], "unknown variant 'bot';", marks=RL),
        pytest.param(["ppo", "--device", "cpu", "--rounds", "0"], "--rounds must be 1 or more; got 0", marks=RL),
    ],
)
def test_a_bad_option_is_an_error_that_says_what_is_allowed(
    args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *args]) == 1
    assert message in capsys.readouterr().err


def test_a_missing_gpu_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ValueError, match="PyTorch finds no GPU here"):
        find_device("cuda")
    assert find_device(None) == "cpu"


@RL
@pytest.mark.parametrize(("args", "warns"), [([], True), (["--quick"], False), (["--device", "cpu"], False)])
def test_ppo_warns_about_a_missing_gpu_unless_the_cpu_was_requested(
    args: list[str], warns: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("body_transformer.bench.ppo.run", lambda *rest: [])
    monkeypatch.setattr(bench, "publish", lambda *rest: None)
    assert main(["bench", "ppo", *args]) == 0
    assert ("no GPU was found, so this runs on the CPU" in capsys.readouterr().err) == warns


@pytest.mark.parametrize("what", ["attention", "encoder", "latency", pytest.param("ppo", marks=RL)])
@pytest.mark.parametrize(
    ("out", "complaint"),
    [("", "--out is empty"), ("file", "cannot write results to '.*file': "), ("file/folder", "cannot write results")],
)
def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_timed(
    what: str, out: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_late(*args: object) -> None:
        raise AssertionError("it was timed")

    monkeypatch.setattr(f"body_transformer.bench.{what}.run", too_late)
    (tmp_path / "file").write_text("kept")
    given = str(tmp_path / out) if out else ""
    with pytest.raises((ValueError, OSError), match=complaint):
        bench.main([what, "--quick", "--device", "cpu", "--out", given])
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize(
    ("args", "stream", "text"),
    [([], "out", "usage: bot bench WHAT"), (["atention"], "err", "unknown benchmark 'atention'; did you mean")],
)
def test_without_a_benchmark_or_with_an_unknown_one_the_status_is_2(
    args: list[str], stream: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", *args])
    assert ended.value.code == 2
    assert text in getattr(capsys.readouterr(), stream)


def test_help_lists_the_benchmarks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(what in out for what in ("attention", "encoder", "latency", "paper"))


def test_chosen_rows_keep_their_order_without_duplicates() -> None:
    assert bench.chosen("row", ("b", "a", "b"), "abc") == ["b", "a"]
    assert bench.chosen("row", (), "abc") == ["a", "b", "c"]
