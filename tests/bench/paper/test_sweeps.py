"""Points of the sweeps, and their measurement."""

import numpy as np
import pytest

from body_transformer.bench.masks import BODIES
from body_transformer.bench.paper.algorithms import IMPLEMENTATIONS, available
from body_transformer.bench.paper.sweeps import QUICK, SPARSITY, PaperSettings, PointTimer, SweepPoint, measure


def test_the_full_setting_is_that_of_the_paper_and_measures_the_longest_length_in_both_dtypes() -> None:
    points = PaperSettings().points()
    lengths = [point for point in points if point.sweep == "length"]
    assert {(point.sparsity, point.draws) for point in lengths} == {(0.908, 10_000)}
    assert [(point.num_nodes, point.dtype) for point in lengths[-2:]] == [(128, "float32"), (128, "float64")]
    for size in (16, 32, 64):
        masks = [point for point in points if point.sweep == "sparsity" and point.num_nodes == size]
        assert sum(point.draws for point in masks) >= 50_000
        assert [masks[0].sparsity, masks[-1].sparsity] == [0, 1 - 1 / size]
    assert [point.name for point in points if point.sweep == "body"] == list(BODIES)


@pytest.mark.parametrize("settings", [QUICK, PaperSettings()], ids=["quick", "full"])
def test_no_two_points_share_a_key(settings: PaperSettings) -> None:
    keys = [point.key for point in settings.points()]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"draws": 0}, "draws must be at least 1; got 0"),
        ({"masks": -5}, "masks must be at least 1; got -5"),
        ({"exp_flops": 0}, "exp_flops must be at least 1"),
        ({"head_dim": 60}, "head_dim 60; have: 16, 32, 64, 128"),
        ({"dtype": "float16"}, "dtype 'float16'; have: float32, float64"),
        ({"seed": -1}, "seed must not be negative"),
        ({"lengths": (8,)}, "sparsity 0.908 with 8 nodes"),
        ({"sparsities": (-0.5,)}, "sparsity -0.5 with 16 nodes"),
    ],
)
def test_bad_settings_are_refused(wrong: dict, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        PaperSettings(**wrong)


def test_a_measured_point_describes_itself() -> None:
    point = SweepPoint("length", "16 nodes", 16, SPARSITY, "float32", draws=4)
    found = measure(point, available(), 32, np.random.default_rng(0))
    assert (found["nodes"], found["ones"], found["draws"]) == (16, 24, 4)
    assert 1 - found["sparsity"] == pytest.approx(24 / 256)
    for quantity in ("median_us", "mean_us", "prepare_us", "speedup"):
        assert set(found[quantity]) == set(available())
        assert all(value > 0 for value in found[quantity].values())
    assert found["speedup"]["vanilla"] == 1
    assert found["flops"]["ours"] < found["flops"]["paper"] < found["flops"]["vanilla"]
    assert all(found["executed_flops"][name] > found["flops"][name] for name in found["flops"])


@pytest.mark.parametrize(
    ("point", "times"),
    [
        (SweepPoint("body", "A1", 0, None, "float32", 1), 1),
        (SweepPoint("length", "", 16, 0.5, "float32", 1), 3),
    ],
    ids=["body", "random mask"],
)
def test_a_body_is_prepared_once_and_a_random_mask_each_time(point: SweepPoint, times: int) -> None:
    rng = np.random.default_rng(0)
    draw_mask, timer = point.mask_source(rng), PointTimer({"vanilla": IMPLEMENTATIONS["vanilla"]}, 16, "float32")
    for _ in range(3):
        timer.draw(draw_mask(), rng)
    assert len(timer.preparations["vanilla"]) == times
    assert len(timer.runtimes["vanilla"]) == 3
