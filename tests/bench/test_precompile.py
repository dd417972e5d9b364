"""Peers compiled ahead of the timed run."""

import sys
from types import SimpleNamespace

import pytest

from body_transformer.bench.harness import Bench, Contender
from body_transformer.cli import bench
from body_transformer.cli.main import main


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record the commands; every process fails."""
    commands: list[list[str]] = []

    def run(command: list[str], **settings: object) -> SimpleNamespace:
        commands.append(command)
        return SimpleNamespace(returncode=-4)

    monkeypatch.setattr("body_transformer.bench.harness.subprocess", SimpleNamespace(run=run, DEVNULL=None))
    for what in ("attention", "encoder"):
        monkeypatch.setattr(f"body_transformer.bench.{what}.run", lambda *rest: [])
    return commands


COMMAND = [sys.executable, "-m", "body_transformer.cli.main", "bench"]
SAME = ["--device", "cpu", "--quick", "--compile", "--compile-only"]


def test_attention_starts_one_process_per_shape_and_dtype_and_reports_failures(
    started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    bench.main(["attention", "--quick", "--device", "cpu", "--compile", "--compile-workers", "2"])
    rows = ["4x2x16x32", "2x2x24x16"]
    wanted = [[*COMMAND, "attention", "--rows", row, "--dtypes", "fp32", *SAME] for row in rows]
    assert sorted(started) == sorted(wanted)
    assert "compiled 2 of 2: attention --rows" in capsys.readouterr().err


def test_the_encoder_starts_one_process_per_part_with_compiled_peers(started: list[list[str]]) -> None:
    rows = ["--rows", "errors", "policy"]
    bench.main(["encoder", *rows, "--quick", "--device", "cpu", "--compile", "--compile-workers", "1"])
    assert started == [[*COMMAND, "encoder", "--rows", "policy", *SAME]]


@pytest.mark.parametrize(
    "flags", [["--compile"], ["--compile-workers", "2"], ["--compile", "--no-peers", "--compile-workers", "2"]]
)
def test_without_workers_or_without_peers_no_process_is_started(flags: list[str], started: list[list[str]]) -> None:
    bench.main(["attention", "--quick", "--device", "cpu", *flags])
    assert started == []


def test_compile_only_runs_every_contender_once_and_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    bench.main(["encoder", "--rows", "ppo", "--quick", "--device", "cpu", "--compile-only"])
    assert capsys.readouterr().out == ""

    calls: list[str] = []
    contenders = [
        Contender("broken", lambda: [lambda: 1 / 0]),
        Contender("works", lambda: [lambda: calls.append("first"), lambda: calls.append("second")]),
    ]
    outcomes = Bench(device="cpu", compile_only=True).time("here", contenders)
    assert calls == ["first"]
    assert outcomes["broken"].error == "ZeroDivisionError: division by zero"


def test_a_process_accepts_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["attention", "--rows", "2x2x24x16", "--dtypes", "fp32", *(flag for flag in SAME if flag != "--compile")]
    assert main(["bench", *args]) == 0
    assert capsys.readouterr().out == ""
