"""Run folders."""

import json
import os
import subprocess

import pytest

from body_transformer import __version__
from body_transformer import run as run_files
from body_transformer.run import Run


def test_a_run_keeps_its_description(tmp_path):
    run = Run.create(tmp_path / "a" / "b", {"name": "demo", "seed": 3, "title": "naïve ✓"})
    found = Run.open(tmp_path / "a" / "b").description()
    assert found["name"] == "demo"
    assert found["seed"] == 3
    assert found["title"] == "naïve ✓"
    assert found["package_version"] == __version__
    assert len((found["git_commit"] or "0" * 40).removesuffix("-dirty")) == 40
    assert run.exists


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path):
    Run.create(tmp_path, {"name": "demo"})
    with pytest.raises(ValueError, match="already holds a run: continue it with --resume"):
        Run.create(tmp_path, {"name": "demo"})


@pytest.mark.parametrize("name", ["main_data.hdf5", "metadata.json", "seed0", "notes.txt", "checkpoints"])
def test_a_folder_that_holds_something_else_is_not_made_a_run(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=f"is not a run folder, and it is not empty: .*--out.* it holds '{name}'"):
        Run.create(tmp_path, {"name": "demo"})
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_files_of_a_run_that_ended_before_its_description_do_not_block_a_new_one(tmp_path):
    with Run(tmp_path).at_work():
        pass
    for name in (".experiment.yaml.0f3a", ".0f3a.experiment.yaml", "log.txt", "seed0.log.txt", "train.log"):
        (tmp_path / name).write_text("half")
    assert Run.create(tmp_path, {"name": "demo"}).description()["name"] == "demo"


def test_a_run_cannot_be_created_at_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"file' is a file, but a run is a folder"):
        Run.create(tmp_path / "file", {})


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is not a run folder: experiment.yaml is missing"):
        Run.open(tmp_path)


def test_an_incomplete_last_line_is_left_out(tmp_path):
    run = Run.create(tmp_path, {})
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"ste')
    assert [line["step"] for line in run.metrics()] == [1, 2]


def test_lines_after_a_step_are_removed(tmp_path):
    run = Run.create(tmp_path, {})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps({"step": step}) + "\n" for step in range(9)) + "{")
    run.forget_after(4)
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 5
    assert [line["step"] for line in run.metrics()] == [0, 1, 2, 3, 4]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["experiment.yaml", "metrics.jsonl"]


def test_two_processes_cannot_be_at_work_in_one_run(tmp_path):
    run = Run.create(tmp_path, {})
    with (
        run.at_work(),
        pytest.raises(ValueError, match=rf"another process \({os.getpid()}\) is working on"),
        Run(tmp_path).at_work(),
    ):
        pass
    with run.at_work():
        assert Run(tmp_path).is_at_work
    assert not run.is_at_work


def test_a_broken_description_is_named(tmp_path):
    for content in (b"a: [", b"a: \xff"):
        (tmp_path / "experiment.yaml").write_bytes(content)
        with pytest.raises(ValueError, match=r"experiment.yaml' is not YAML"):
            Run.open(tmp_path).description()
    (tmp_path / "experiment.yaml").write_text("- a")
    with pytest.raises(ValueError, match="must be a mapping"):
        Run.open(tmp_path).description()


@pytest.mark.parametrize("changed", ["", " M src/body_transformer/run.py"])
def test_the_commit_of_a_changed_source_tree_is_marked_dirty(monkeypatch, changed):
    def git(words, **options):
        assert options["cwd"].name == "body_transformer"
        text = {"rev-parse": "c0ffee\n", "status": changed}[words[1]]
        return subprocess.CompletedProcess(words, 0, stdout=text)

    monkeypatch.setattr(run_files.subprocess, "run", git)
    monkeypatch.setattr(run_files.Path, "exists", lambda path: True)
    assert run_files.git_commit() == ("c0ffee-dirty" if changed else "c0ffee")
