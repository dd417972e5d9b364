"""benchmarks/board_figure.py: the figure of the runs that are kept."""

from pathlib import Path

import pytest

RUNS = Path(__file__).parents[3] / "benchmarks" / "results" / "rl_h200"


@pytest.fixture(scope="module")
def board_figure(benchmark_script):
    return benchmark_script("board_figure")


def test_it_shows_the_numbers_of_the_runs(board_figure, tmp_path):
    left, right = board_figure.draw(RUNS).axes
    assert [line.get_label() for line in left.lines] == ["mlp", "transformer", "bot-hard", "bot-mix"]
    assert [round(line.get_ydata()[-1]) for line in left.lines] == [89, 166, 156, 192]
    training, evaluations, change = right.lines
    assert len(training.get_xdata()) > 100
    assert max(evaluations.get_ydata()) > 800
    assert 79 < change.get_xdata()[0] < 80
    board_figure.main([str(RUNS), "--out", str(tmp_path / "board.png")])
    assert (tmp_path / "board.png").stat().st_size > 10_000


def test_missing_runs_are_named_in_the_error(board_figure, tmp_path):
    with pytest.raises(SystemExit, match=r"board_figure: .*board/humanoid-board/mlp"):
        board_figure.main([str(tmp_path), "--out", str(tmp_path / "board.png")])
