"""Tables and figures of the studies from existing runs."""

import json
from pathlib import Path

import matplotlib as mpl

from body_transformer.cli.main import main
from body_transformer.report.load import LoadedRun
from body_transformer.reproduce.scores import as_markdown, evaluations, position, score
from body_transformer.reproduce.study import load_study, read_study, run_folder

from ..report.run_folders import write_files


def write_run(folder: Path, key: str, scores: list[float], parameters: int = 1000, finished: bool = True) -> None:
    described = {"name": "x", "variant": "mlp", "seed": 0, "num_parameters": parameters}
    lines = [{"step": step, key: {"mean": score}} for step, score in enumerate(scores)]
    write_files(folder, described, lines, {} if finished else None, cut_off='{"ste')


def runs_of(study, arm, out: Path, num_seeds: int) -> list[LoadedRun]:
    """Read the runs of one arm."""
    return next(runs for other, runs in read_study(study, out, num_seeds) if other == arm)


def test_the_maximum_and_the_mean_are_averaged_over_seeds(tmp_path):
    study = load_study("table1")
    arm = study.arms[2]
    for seed, scores in enumerate([[0.2, 0.6, 0.4], [0.4, 0.8, 0.6]]):
        write_run(run_folder(tmp_path, arm, seed), "eval/train/normalized_return", scores)
    text = as_markdown(study, read_study(study, tmp_path, 5), 5)
    assert "0.700 / 0.500 ± 0.163 (± 0.100) (2 of 5 seeds) | 0.751 / 0.691 ± 0.024" in text
    assert "| mlp | – | 0.623 / 0.572 ± 0.022" in text


def test_the_score_of_adroit_is_the_mean_of_the_last_ten_evaluations(tmp_path):
    study = load_study("adroit")
    arm = study.arms[0]
    write_run(run_folder(tmp_path, arm, 0), "eval/validation/success", [0.0] * 190 + [0.5] * 10)
    assert score(evaluations(study, runs_of(study, arm, tmp_path, 1), "success", "validation")).mean == 0.5


def test_a_run_that_is_not_finished_does_not_count(tmp_path):
    study = load_study("adroit")
    arm = study.arms[0]
    write_run(run_folder(tmp_path, arm, 0), "eval/validation/success", [0.1], finished=False)
    assert evaluations(study, runs_of(study, arm, tmp_path, 2), "success", "validation") == []
    write_run(run_folder(tmp_path, arm, 1), "eval/validation/success", [0.5] * 10)
    assert evaluations(study, runs_of(study, arm, tmp_path, 2), "success", "validation") == [[0.5] * 10]


def test_the_number_of_parameters_is_known_from_any_seed(tmp_path):
    study = load_study("scaling")
    arm = study.arms[0]
    assert position(arm, runs_of(study, arm, tmp_path, 3)) is None
    write_run(run_folder(tmp_path, arm, 1), "eval/train/normalized_return", [0.5], 123_456)
    assert position(arm, runs_of(study, arm, tmp_path, 3)) == 123_456
    assert "| 123,456 |" in as_markdown(study, read_study(study, tmp_path, 3), 3)


def test_existing_runs_are_drawn(tmp_path, capsys):
    study = load_study("scaling")
    for number, arm in enumerate(study.arms):
        for split in study.splits:
            key = f"eval/{split}/normalized_return"
            if not run_folder(tmp_path, arm, 0).exists():
                write_run(run_folder(tmp_path, arm, 0), key, [0.1 * number, 0.5], 10 ** (number + 3))
    assert main(["reproduce", "scaling", "--draw", "--seeds", "1", "--out", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["files"] == [str(tmp_path / "scaling.md"), str(tmp_path / "scaling.png")]
    assert found["finished"] == len(study.arms) == 12
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
    assert "1,000" in (tmp_path / "scaling.md").read_text()
    usual = (tmp_path / "scaling.png").read_bytes()
    with mpl.rc_context({"axes.facecolor": "black", "text.color": "white", "savefig.bbox": "tight", "font.size": 30}):
        assert main(["reproduce", "scaling", "--draw", "--seeds", "1", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "scaling.png").read_bytes() == usual, "a user's style changes nothing"


def test_the_runs_are_listed_with_their_states(tmp_path, capsys):
    study = load_study("table1")
    write_run(run_folder(tmp_path, study.arms[0], 0), "x", [1.0])
    write_run(run_folder(tmp_path, study.arms[1], 0), "x", [1.0], finished=False)
    assert main(["reproduce", "table1", "--list", "--seeds", "1", "--out", str(tmp_path), "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["runs"].values()) == ["finished", "begun", "missing"]


def test_a_failed_run_gives_its_reason(tmp_path, capsys):
    missing = ["--", "--imitation.data", str(tmp_path / "nowhere")]
    assert main(["reproduce", "adroit", "--seeds", "1", "--out", str(tmp_path / "out"), *missing]) == 1
    words = capsys.readouterr().err
    assert "ended with status 1" in words
    assert "nowhere" in words
