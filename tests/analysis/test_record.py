"""What a run leaves behind."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from body_transformer.analysis.flops import Costs
from body_transformer.analysis.record import UNFINISHED, Record, crossing, flop_counts
from body_transformer.analysis.sweeps import QUICK

HERE = {"device": "a CPU", "body_transformer": "0", "numpy": "2", "torch": "2", "compiler": "cc 1", "date": "today"}
HERE |= {"command": "bot bench paper --quick"}


def unfinished(folder: Path) -> list[dict]:
    points = [{"key": point.key, "sweep": point.sweep} for point in QUICK.points()[:3]]
    Record(QUICK, HERE, points).save(folder)
    return points


def test_an_unfinished_run_is_continued(tmp_path: Path) -> None:
    points = unfinished(tmp_path)
    record = Record(QUICK, HERE | {"date": "tomorrow"})
    assert record.take_over(tmp_path) == 3
    assert record.points == points


@pytest.mark.parametrize(
    "other",
    [
        Record(replace(QUICK, head_dim=32), HERE),
        Record(QUICK, HERE | {"device": "another CPU"}),
        Record(QUICK, HERE | {"numpy": "3"}),
        Record(QUICK, HERE | {"compiler": "none"}),
    ],
    ids=["settings", "machine", "version", "compiler"],
)
def test_a_run_that_differs_is_neither_continued_nor_discarded_unasked(other: Record, tmp_path: Path) -> None:
    unfinished(tmp_path)
    with pytest.raises(ValueError, match=r"3 points of a stopped run .*'bot bench paper --quick'.*--overwrite"):
        other.take_over(tmp_path)
    assert other.take_over(tmp_path, overwrite=True) == 0


def test_what_differs_is_named(tmp_path: Path) -> None:
    unfinished(tmp_path)
    with pytest.raises(ValueError, match=r"head_dim 64, here 32"):
        Record(replace(QUICK, head_dim=32), HERE).take_over(tmp_path)
    with pytest.raises(ValueError, match=r"numpy 2, here 3"):
        Record(QUICK, HERE | {"numpy": "3"}).take_over(tmp_path)


def test_a_stopped_run_without_a_point_is_no_loss(tmp_path: Path) -> None:
    Record(QUICK, HERE).save(tmp_path)
    assert Record(replace(QUICK, head_dim=32), HERE).take_over(tmp_path) == 0


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"settings": 3}', '{"points": []}'])
def test_a_file_that_is_none_of_ours_is_measured_afresh(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / UNFINISHED).write_text(text)
    assert Record(QUICK, HERE).take_over(tmp_path) == 0


def test_earlier_results_stay_until_the_new_ones_are_whole(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{}")
    unfinished(tmp_path)
    assert (tmp_path / "results.json").read_text() == "{}"


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
def test_break_even_is_where_it_becomes_faster_for_good(speedups: list[float], expected: float | None) -> None:
    found = crossing([0.0, 0.5, 0.9], speedups)
    assert found == (expected if expected is None else pytest.approx(expected))


def test_the_formulas_are_shown_beside_their_counts() -> None:
    for row in flop_counts(16, Costs(exponential=3)):
        assert row["formula"] == row["counted"] < row["executed"]
        assert sum(row["reasons"].values()) == row["executed"] - row["counted"]
        json.dumps(row)
