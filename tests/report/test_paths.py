"""Paths of walking robots on the page about runs."""

import json
from pathlib import Path

import pytest

from body_transformer.report.load import read_run
from body_transformer.report.page import write_report
from body_transformer.run import PATHS

from .run_folders import write_run

WAYS = {"walked": [[[0.0, 0.0], [1.0, 0.1], [2.0, 0.4]]], "commanded": [[[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]]}


def test_a_page_draws_walked_and_commanded_paths(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", "mlp", 0)
    (run / PATHS).write_text(json.dumps(WAYS))
    write_report(tmp_path / "page.html", [run])
    text = (tmp_path / "page.html").read_text()
    assert "Paths from above" in text
    assert "2 m ahead, 0.4 m to the left" in text


def test_a_page_about_runs_without_paths_does_not_mention_them(tmp_path: Path) -> None:
    write_report(tmp_path / "page.html", [write_run(tmp_path / "runs", "mlp", 0)])
    assert "Paths from above" not in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("content", ["{", "[]", '{"walked": []}', '{"walked": [[1]], "commanded": []}'])
def test_paths_that_cannot_be_read_are_noted(tmp_path: Path, content: str) -> None:
    run = write_run(tmp_path / "runs", "mlp", 0)
    (run / PATHS).write_text(content)
    found = read_run(run)
    assert found.paths is None
    assert "paths.json cannot be read" in found.notes
