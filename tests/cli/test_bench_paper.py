"""`bot bench paper`."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from body_transformer.bench.paper.algorithms import IMPLEMENTATIONS, available
from body_transformer.bench.paper.compiled import compiler_version, why_not
from body_transformer.bench.paper.sweeps import QUICK
from body_transformer.cli import bench
from body_transformer.schema import plain

FEW = ["--quick", "--draws", "3", "--masks", "5", "--body-draws", "2"]
COMMAND = [sys.executable, "-m", "body_transformer.cli.main", "bench", "paper"]
WAITING = """
import sys, time
from body_transformer.bench.paper.record import Record
from body_transformer.cli.bench import main
save = Record.save
Record.save = lambda self, folder: (save(self, folder), time.sleep(100 if len(self.points) >= 3 else 0))[0]
main(["paper", *sys.argv[1:]])
"""
"""Pauses after three points until it is killed."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the whole benchmark once; return its folder, with its output in two files."""
    folder = tmp_path_factory.mktemp("paper")
    draws = ["--quick", "--draws", "100", "--masks", "5", "--body-draws", "2"]
    run = subprocess.run([*COMMAND, *draws, "--json", "--out", folder], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    (folder / "stdout").write_text(run.stdout)
    (folder / "stderr").write_text(run.stderr)
    return folder


def test_json_is_one_object_and_nothing_else(results: Path) -> None:
    printed = json.loads((results / "stdout").read_text())
    assert printed == json.loads((results / "results.json").read_text())


def test_results_have_every_point_with_every_contender(results: Path) -> None:
    found = json.loads((results / "results.json").read_text())
    settings = plain(QUICK) | {"draws": 100, "masks": 5, "body_draws": 2}
    assert found["settings"] == settings
    assert [point["key"] for point in found["points"]] == [point.key for point in QUICK.points()]
    for point in found["points"]:
        assert set(point["median_us"]) == set(available())
    assert set(found["contenders"]) == set(IMPLEMENTATIONS)
    assert set(found["break_even_sparsity"]) == {"16 nodes", "32 nodes", "64 nodes"}
    assert {row["dtype"] for row in found["headline"]} == {"float32", "float64"}
    for row in found["flop_counts"]:
        assert row["formula"] == row["counted"] == row["executed"] - sum(row["reasons"].values())
        assert row["reasons"]


def test_results_describe_machine_versions_date_and_command(results: Path) -> None:
    environment = json.loads((results / "results.json").read_text())["environment"]
    assert environment["command"].startswith("bot bench paper --quick --draws 100")
    assert environment["threads"] == "1"
    assert {"device", "date", "numpy", "torch", "python", "body_transformer", "compiler"} <= set(environment)


@pytest.mark.skipif(why_not() is not None, reason="no working C compiler")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_best_of_ours_is_far_faster_than_vanilla_at_128_nodes(results: Path, dtype: str) -> None:
    """The measured factor is five and more (docs/computational_analysis.md); three is safe on a busy machine."""
    headline = json.loads((results / "results.json").read_text())["headline"]
    (row,) = (row for row in headline if row["dtype"] == dtype)
    assert row["nodes"] == 128
    assert row["speedup"] > 3


def test_table_and_figures_are_beside_the_results(results: Path) -> None:
    for name in ("paper_length.png", "paper_sparsity.png", "paper_body.png"):
        assert (results / name).read_bytes().startswith(b"\x89PNG")
        assert name in (results / "stderr").read_text()
    assert "| NumPy vanilla |" in (results / "table.md").read_text()
    assert not [path for path in results.iterdir() if path.name.startswith(".") or path.name == "unfinished.json"]


@pytest.mark.skipif(sys.platform == "win32", reason="no such program")
def test_without_a_compiler_tables_and_notes_are_printed_without_c(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", "false")
    bench.main(["paper", *FEW, "--out", str(tmp_path)])
    printed = " ".join(capfd.readouterr().out.split())  # line breaks depend on the numbers' widths
    assert all(label in printed for label in ("vanilla", "C ours", "CMU humanoid", "humanoid, 1000 taxels"))
    assert "times faster than vanilla NumPy" in printed
    assert "by the formula, as counted" in printed
    found = json.loads((tmp_path / "results.json").read_text())
    assert "ours-c" not in found["points"][0]["median_us"]
    assert re.match("none: C is left out .*false .*failed", found["environment"]["compiler"])


def test_bad_options_are_refused_before_anything_is_measured() -> None:
    with pytest.raises(ValueError, match="draws must be at least 1; got 0"):
        bench.main(["paper", "--quick", "--draws", "0"])


@pytest.mark.alone
def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    start = time.monotonic()
    with pytest.raises(OSError, match=r"cannot write results to .*folder"):
        bench.main(["paper", *FEW, "--out", str(tmp_path / "file" / "folder")])
    with pytest.raises(ValueError, match="--out is empty"):
        bench.main(["paper", *FEW, "--out", ""])
    assert time.monotonic() - start < 3


@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
def test_a_stopped_run_is_resumed_and_earlier_results_stay_until_it_is_complete(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{}")
    options = [*FEW, "--out", str(tmp_path)]
    command = [sys.executable, "-c", WAITING, *options]
    env = os.environ | dict.fromkeys(bench.THREAD_VARIABLES, "1")
    first = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0)
    saved = tmp_path / "unfinished.json"
    while not (saved.exists() and len(json.loads(saved.read_text())["points"]) >= 3):
        assert first.poll() is None
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGINT)  # as Ctrl-C does, to parent and child alike
    assert first.wait(timeout=30) != 0
    assert (tmp_path / "results.json").read_text() == "{}"
    kept = json.loads(saved.read_text())["points"]
    second = subprocess.run([*COMMAND, *options], capture_output=True, text=True, check=True, timeout=300)
    assert f"resuming with the {len(kept)} points" in second.stderr
    assert json.loads((tmp_path / "results.json").read_text())["points"][: len(kept)] == kept
    assert not saved.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no such program")
@pytest.mark.parametrize(
    ("name", "path", "reason"),
    [("", "", "no C compiler found"), ("false", None, "false .*failed"), ("echo", None, "echo .*wrote no library")],
    ids=["there is none", "it fails", "it writes nothing"],
)
def test_a_compiler_that_does_not_work_is_named_and_c_is_left_out(
    name: str, path: str | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", name)
    if path is not None:
        monkeypatch.setenv("PATH", path)
    assert set(available()) == set(IMPLEMENTATIONS) - {"ours-c"}
    assert re.match(f"none: C is left out .*{reason}", compiler_version())
