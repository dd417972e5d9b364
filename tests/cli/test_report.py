"""`bot report`."""

import json
from pathlib import Path

import pytest

from body_transformer.cli.main import main

from ..report.run_folders import estimate, write_files


@pytest.fixture
def run(tmp_path: Path) -> Path:
    described = {"name": "demo", "title": "A title", "variant": "mlp", "seed": 0}
    lines = [{"step": 1, "train/loss": 0.5}, {"step": 2, "train/loss": 0.25}]
    folder = tmp_path / "runs" / "demo" / "mlp" / "seed0"
    return write_files(folder, described, lines, {"train": {"success": estimate(0.5, 0.1, 8)}})


def test_it_writes_the_page_and_prints_its_path_and_size(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "pages" / "report.html"
    assert main(["report", str(run), "--out", str(out), "--title", "Mine"]) == 0
    assert "<h1>Mine</h1>" in out.read_text()
    said = capsys.readouterr()
    assert said.out == f"wrote {out} ({round(out.stat().st_size / 1000)} kB, 1 run)\n"
    assert said.err == ""


def test_unfinished_runs_are_named_in_json_and_on_standard_error(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "evaluation.json").unlink()
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "runs"), "--out", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"path": str(out), "bytes": out.stat().st_size, "runs": 1, "unfinished": [str(run)]}
    assert "<h1>A title</h1>" in out.read_text()
    assert main(["report", str(run), "--out", str(out)]) == 0
    assert capsys.readouterr().err == f"unfinished: {run}\n"


def test_a_folder_without_runs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["report", str(tmp_path / "empty"), "--out", str(tmp_path / "report.html")]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"bot report: {str(tmp_path / 'empty')!r} contains neither a run (experiment.yaml) nor a ")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("args", [[], ["runs"]])
def test_runs_and_a_file_must_be_named(args: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["report", *args])
    assert error.value.code == 2


def test_an_empty_list_of_runs_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--out", str(tmp_path / "report.html")]) == 1
    assert capsys.readouterr().err == "bot report: a report needs at least one run; got none\n"


# -- deployments -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def deployments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from ..report.deployment_folders import deploy, tilting

    folder = tmp_path_factory.mktemp("deployments")
    deploy(folder / "one", seconds=0.2)
    deploy(folder / "two", fault=tilting)
    return folder


def test_deployments_are_counted_and_those_that_ended_early_are_named(
    deployments: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    assert main(["report", str(deployments / "one"), str(deployments / "two"), "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert said.out == f"wrote {out} ({round(out.stat().st_size / 1000)} kB, 2 deployments)\n"
    assert said.err.startswith(f"ended early: {deployments / 'two'}: tilted: 1.0")
    assert "<h1>2 deployments of a1-walk</h1>" in out.read_text()
    assert main(["report", str(deployments / "two"), "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found.pop("stopped")) == [str(deployments / "two")]
    assert found == {"path": str(out), "bytes": out.stat().st_size, "deployments": 1}


def test_runs_and_deployments_together_are_refused_in_one_sentence(
    run: Path, deployments: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(run), str(deployments), "--out", str(tmp_path / "report.html")]) == 1
    said = capsys.readouterr().err
    assert said == (
        f"bot report: a page shows either runs or deployments, but {str(run)!r} is a run and "
        f"{str(deployments / 'one')!r} is a deployment; write one page for each kind\n"
    )
    assert not (tmp_path / "report.html").exists()
