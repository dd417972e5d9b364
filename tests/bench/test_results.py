"""Tables of results as text, JSON and files."""

import json
from functools import partial
from operator import itemgetter
from pathlib import Path

import pytest

from body_transformer.bench.chart import chart, series_of
from body_transformer.bench.results import BenchReport, ResultColumn, ResultTable, significant, written
from body_transformer.pictures import save

ROWS = [{"name": "a|b", "ms": 0.01634, "ratio": 2.0}, {"name": "c", "ms": "failed", "ratio": None}]
COLUMNS = [
    ResultColumn("name", "contender"),
    ResultColumn("ms", "ms", "number"),
    ResultColumn("ratio", "over", "ratio"),
]
SERIES = {"time": itemgetter("ms"), "ratio": itemgetter("ratio"), "none": lambda row: None}
TABLE = ResultTable("times", "some times", COLUMNS, ROWS, "{name}", SERIES)
FIGURES = {"chart.png": partial(chart, "a chart", [TABLE])}
REPORT = BenchReport("attention", {"device": "a CPU"}, [TABLE], ["a note"], FIGURES)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01634, "0.0163"), (2.676, "2.68"), (40.44, "40.4"), (1234.5, "1,234"), (0, "0"), (100.2, "100")],
)
def test_numbers_show_three_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


def test_missing_and_failed_values_are_shown_as_such() -> None:
    assert written(None, "number") == "-"
    assert written("failed", "number") == "failed"


def test_markdown_has_the_environment_every_row_and_the_notes() -> None:
    text = REPORT.to_markdown()
    assert "- device: a CPU" in text
    assert "| contender | ms | over |\n| --- | --- | --- |\n| a\\|b | 0.0163 | 2.00x |\n| c | failed | - |" in text
    assert text.endswith("- a note\n")


def test_the_files_are_json_markdown_and_a_figure_and_no_temporary_file_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    paths = REPORT.write(folder)
    assert [path.name for path in paths] == ["results.json", "table.md", "chart.png"]
    assert sorted(folder.iterdir()) == sorted(paths)
    assert json.loads(paths[0].read_text()) == REPORT.to_dict()
    assert paths[2].read_bytes().startswith(b"\x89PNG")


def test_a_number_that_is_not_finite_is_a_string_in_json() -> None:
    report = BenchReport("encoder", {}, [ResultTable("errors", "errors", [], [{"ours": float("nan"), "torch": 1e-3}])])
    assert report.to_dict()["tables"]["errors"]["rows"] == [{"ours": "nan", "torch": 1e-3}]


def test_a_series_has_dots_for_numbers_only_and_is_left_out_without_any() -> None:
    assert series_of(TABLE) == {"time": [0.01634, None], "ratio": [2.0, None]}


def test_an_empty_chart_can_be_drawn(tmp_path: Path) -> None:
    save(partial(chart, "empty", [ResultTable("empty", "", [], [])]), tmp_path / "chart.png")
    assert (tmp_path / "chart.png").exists()
