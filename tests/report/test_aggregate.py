"""The comparison over seeds, and curves with their bands."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from body_transformer.report.aggregate import RunGroup, clear_winner, compare, over_seeds
from body_transformer.report.curves import Curve, curve, thinned_ids
from body_transformer.report.load import LoadedRun, LoggedPoint, ValueRange
from body_transformer.report.text import decimals, duration, rounded, short

KEY = ("train", "length")


def make_run(
    seed: int,
    result: ValueRange | None = None,
    points: Sequence[tuple[int, float]] = (),
    notes: tuple[str, ...] = (),
    key: tuple[str, str] = KEY,
) -> LoadedRun:
    curves = (
        {"x": [LoggedPoint(step, step / 10, ValueRange(value, value, value)) for step, value in points]}
        if points
        else {}
    )
    results = {} if result is None else {key: result}
    settings = {"name": "demo", "variant": "mlp", "seed": seed}
    return LoadedRun(Path(f"seed{seed}"), settings, curves, results, 0, None, notes)


def make_group(label: str, *means: float, half: float = 0.01, notes: tuple[str, ...] = ()) -> RunGroup:
    runs = [make_run(k, ValueRange(m, m - half, m + half, 100), notes=notes) for k, m in enumerate(means)]
    return RunGroup("demo", label, tuple(runs))


# -- the table ---------------------------------------------------------------------------------------------------------


def test_several_seeds_give_their_mean_with_the_lowest_and_highest_seed() -> None:
    assert over_seeds(make_group("a", 0.2, 0.6, 0.4).runs, *KEY) == ValueRange(pytest.approx(0.4), 0.2, 0.6, 100, 3)


def test_one_seed_gives_its_interval_over_episodes() -> None:
    assert over_seeds(make_group("a", 0.5, half=0.1).runs, *KEY) == ValueRange(0.5, 0.4, 0.6, 100)


def test_a_seed_without_a_value_is_left_out() -> None:
    runs = [*make_group("a", 0.5, 0.7).runs, make_run(2)]
    assert over_seeds(runs, *KEY) == ValueRange(pytest.approx(0.6), 0.5, 0.7, 100, 2)
    assert over_seeds([make_run(0)], *KEY) is None


@pytest.mark.parametrize(
    ("intervals", "higher_is_better", "best"),
    [
        ([(0.8, 0.9), (0.5, 0.7)], True, 0),
        ([(0.8, 0.9), (0.5, 0.8)], True, None),  # they touch
        ([(0.8, 0.9), (0.5, 0.85)], True, None),
        ([(0.8, 0.9), (0.1, 0.2), (0.95, 0.99)], True, 2),
        ([(0.8, 0.9), (0.1, 0.2)], False, 1),
        ([(0.8, 0.9), (0.1, 0.85)], False, None),
        ([(1.0, 1.0), (1.0, 1.0)], True, None),
    ],
)
def test_a_winner_is_clear_only_where_its_interval_touches_no_other(intervals, higher_is_better, best) -> None:
    cells = {k: ValueRange((low + high) / 2, low, high) for k, (low, high) in enumerate(intervals)}
    assert clear_winner(cells, higher_is_better) == best


def test_the_verdict_names_the_winner_and_is_open_while_runs_are_unfinished() -> None:
    one, two, near = make_group("one", 0.9), make_group("two", 0.5), make_group("near", 0.89)
    assert [column.verdict for column in compare([one, two])] == ["one"]
    assert [column.verdict for column in compare([one, near])] == ["no clear winner"]
    assert [(c.verdict, c.best) for c in compare([one, make_group("late", 0.5, notes=("no evaluation",))])] == [
        ("open", None)
    ]
    assert [column.verdict for column in compare([one])] == [""]


def test_lower_is_better_for_errors_and_losses() -> None:
    key = ("train", "tracking_error")
    groups = [RunGroup("demo", str(mean), (make_run(0, ValueRange(mean, mean, mean), key=key),)) for mean in (0.2, 0.8)]
    assert [(column.best, column.higher_is_better) for column in compare(groups)] == [(0, False)]


# -- curves ------------------------------------------------------------------------------------------------------------


def group_of(*seeds: list[tuple[int, float]]) -> RunGroup:
    return RunGroup("demo", "a", tuple(make_run(k, points=points) for k, points in enumerate(seeds)))


def test_the_band_of_two_seeds_spans_both() -> None:
    found = curve(group_of([(10, 1.0), (20, 3.0), (30, 5.0)], [(10, 2.0), (20, 2.0), (30, 9.0)]), "x")
    assert found is not None
    assert found.at.tolist() == [10, 20, 30]
    assert found.mean.tolist() == [1.5, 2.5, 7.0]
    assert found.low.tolist() == [1.0, 2.0, 5.0]
    assert found.high.tolist() == [2.0, 3.0, 9.0]


def test_seeds_logged_at_different_steps_are_interpolated_and_count_until_their_end() -> None:
    found = curve(group_of([(0, 0.0), (20, 2.0)], [(0, 0.0), (10, 3.0), (20, 4.0), (40, 8.0)]), "x")
    assert found is not None
    assert found.at.tolist() == [0, 10, 20, 40]
    assert found.mean.tolist() == [0.0, 2.0, 3.0, 8.0]
    assert found.low.tolist() == [0.0, 1.0, 2.0, 8.0]


def test_one_seed_without_intervals_has_no_band_and_time_can_be_the_axis() -> None:
    found = curve(group_of([(10, 1.0), (20, 3.0)]), "x", by="time_s")
    assert found is not None
    assert found.at.tolist() == [1.0, 2.0]
    assert not found.has_band
    assert curve(group_of([(10, 1.0)]), "y") is None


def test_a_long_curve_is_thinned_and_keeps_its_ends_and_every_spike() -> None:
    count = 100_000
    rng = np.random.default_rng(0)
    mean = np.sin(np.linspace(0, 9, count)) + 0.1 * rng.standard_normal(count)
    low, high = mean - 0.1, mean + 0.1
    mean[40_000], low[70_001], high[12_345] = 50.0, -60.0, 70.0
    whole = Curve(np.arange(count, dtype=float), mean, low, high)
    thin = whole.at_ids(thinned_ids(whole))
    assert 200 < len(thin.at) <= 500
    assert (thin.at[0], thin.at[-1]) == (0, count - 1)
    assert (thin.mean.max(), thin.low.min(), thin.high.max()) == (50.0, -60.0, 70.0)
    assert (np.diff(thin.at) > 0).all()
    assert np.array_equal(thin.mean, mean[thin.at.astype(int)])
    assert len(thinned_ids(thin)) == len(thin.at)


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((0.5, 0.25), ["0.500", "0.250"]),
        ((2448.3, 46.0), ["2448", "46"]),
        ((-12.34, 3.0), ["−12.3", "3.0"]),
        ((0.0123, 0.002), ["0.0123", "0.0020"]),
        ((0.0,), ["0.000"]),
    ],
)
def test_a_column_shows_the_same_number_of_places(values, texts) -> None:
    assert [rounded(value, decimals(values)) for value in values] == texts


def test_numbers_on_axes_and_durations_are_short() -> None:
    assert [short(value) for value in (0, 0.25, 1500, 40_000, 17_500_000, 1e-5)] == [
        "0",
        "0.25",
        "1500",
        "40k",
        "17.5M",
        "1e−5",
    ]
    assert [duration(value) for value in (4.25, 42, 200, 18_420)] == ["4.2 s", "42 s", "3 min 20 s", "5 h 07 min"]
