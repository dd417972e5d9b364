"""Saved and resumed runs, and break-even sparsities."""

from dataclasses import replace
from pathlib import Path

import pytest

from body_transformer.bench.paper.record import UNFINISHED, Record
from body_transformer.bench.paper.report import crossing
from body_transformer.bench.paper.sweeps import QUICK

HERE = {"device": "a CPU", "body_transformer": "0", "numpy": "2", "torch": "2", "compiler": "cc 1", "date": "today"}
HERE |= {"command": "bot bench paper --quick"}


def unfinished(folder: Path) -> list[dict]:
    points = [{"key": point.key, "sweep": point.sweep} for point in QUICK.points()[:3]]
    Record(QUICK, HERE, points).save(folder)
    return points


def test_an_unfinished_run_is_resumed(tmp_path: Path) -> None:
    points = unfinished(tmp_path)
    record = Record(QUICK, HERE | {"date": "tomorrow"})
    assert record.take_over(tmp_path) == 3
    assert record.points == points
    assert record.missing() == QUICK.points()[3:]


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (Record(replace(QUICK, head_dim=32), HERE), "head_dim 64, here 32"),
        (Record(QUICK, HERE | {"device": "another CPU"}), "device a CPU, here another CPU"),
        (Record(QUICK, HERE | {"numpy": "3"}), "numpy 2, here 3"),
        (Record(QUICK, HERE | {"compiler": "none"}), "compiler cc 1, here none"),
    ],
    ids=["settings", "machine", "version", "compiler"],
)
def test_a_different_run_is_discarded_only_with_overwrite(other: Record, difference: str, tmp_path: Path) -> None:
    unfinished(tmp_path)
    refusal = rf"3 points of a stopped run .*\({difference}\); 'bot bench paper --quick' resumes it, --overwrite"
    with pytest.raises(ValueError, match=refusal):
        other.take_over(tmp_path)
    assert other.take_over(tmp_path, overwrite=True) == 0


def test_a_stopped_run_without_points_may_be_replaced(tmp_path: Path) -> None:
    Record(QUICK, HERE).save(tmp_path)
    assert Record(replace(QUICK, head_dim=32), HERE).take_over(tmp_path) == 0


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"settings": 3}', '{"points": []}'])
def test_a_file_of_another_format_is_ignored(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / UNFINISHED).write_text(text)
    assert Record(QUICK, HERE).take_over(tmp_path) == 0


@pytest.mark.parametrize(
    ("speedups", "expected"),
    [
        ([1.5, 2, 3], 0.0),
        ([0.5, 0.7, 0.9], None),
        ([0.5, 1.5, 3], 0.25),
        ([0.5, 0.5, 2], 0.5 + 0.4 / 3),
        ([1.5, 0.5, 2], 0.5 + 0.4 / 3),
    ],
)
def test_break_even_is_the_sparsity_above_which_it_stays_faster(speedups: list[float], expected: float | None) -> None:
    found = crossing([0.0, 0.5, 0.9], speedups)
    assert found == (expected if expected is None else pytest.approx(expected))
