"""The measured points, and the measurement of one."""

import numpy as np
import pytest

from body_transformer.bench.bodies import BODIES
from body_transformer.bench.paper import worker
from body_transformer.bench.paper.algorithms import IMPLEMENTATIONS, available
from body_transformer.bench.paper.compiled import why_not
from body_transformer.bench.paper.sweeps import QUICK, SPARSITY, PaperSettings, PointTimer, SweepPoint, measure
from body_transformer.schema import build, plain


def test_the_full_setting_is_the_papers() -> None:
    settings = PaperSettings()
    points = settings.points()
    lengths = [point for point in points if point.sweep == "length"]
    assert max(point.num_nodes for point in lengths) == 128
    assert {(point.sparsity, point.draws) for point in lengths} == {(0.908, 10_000)}
    for size in (16, 32, 64):
        masks = [point for point in points if point.sweep == "sparsity" and point.num_nodes == size]
        assert sum(point.draws for point in masks) >= 50_000
        assert [masks[0].sparsity, masks[-1].sparsity] == [0, 1 - 1 / size]
    assert [point.name for point in points if point.sweep == "body"] == list(BODIES)


def test_the_longest_length_is_measured_in_both_dtypes() -> None:
    longest = [point.dtype for point in PaperSettings().points() if point.sweep == "length" and point.num_nodes == 128]
    assert sorted(longest) == ["float32", "float64"]


def test_no_two_points_share_a_key() -> None:
    for settings in (QUICK, PaperSettings()):
        keys = [point.key for point in settings.points()]
        assert len(set(keys)) == len(keys)


def test_settings_survive_json() -> None:
    assert build(PaperSettings, plain(QUICK)) == QUICK


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
    drawn = []
    point = SweepPoint("length", "16 nodes", 16, SPARSITY, "float32", draws=4)
    found = measure(point, available(), 32, np.random.default_rng(0), drawn=lambda: drawn.append(1))
    assert len(drawn) == 4
    assert (found["nodes"], found["ones"], found["draws"]) == (16, 24, 4)
    assert 1 - found["sparsity"] == pytest.approx(24 / 256)
    for quantity in ("median_us", "mean_us", "prepare_us", "speedup"):
        assert set(found[quantity]) == set(available())
        assert all(value > 0 for value in found[quantity].values())
    assert found["speedup"]["vanilla"] == 1
    assert found["flops"]["ours"] < found["flops"]["paper"] < found["flops"]["vanilla"]
    assert all(found["executed_flops"][name] > found["flops"][name] for name in found["flops"])


def test_a_body_is_prepared_once_and_a_random_mask_each_time() -> None:
    rng = np.random.default_rng(0)
    for point, times in (
        (SweepPoint("body", "A1", 0, None, "float32", 1), 1),
        (SweepPoint("length", "", 16, 0.5, "float32", 1), 3),
    ):
        draw_mask, timer = point.mask_source(rng), PointTimer({"vanilla": IMPLEMENTATIONS["vanilla"]}, 16, "float32")
        for _ in range(3):
            timer.draw(draw_mask(), rng)
        assert len(timer.preparations["vanilla"]) == times
        assert len(timer.runtimes["vanilla"]) == 3


@pytest.mark.skipif(why_not() is not None, reason="no C compiler that works")
def test_the_best_of_ours_is_far_faster_than_vanilla_at_128_nodes() -> None:
    """The measured factor is five and more (docs/computational_analysis.md); three is safe on a busy machine."""
    settings = PaperSettings(lengths=(128,), draws=100, sizes=())
    measured = (message["point"] for message in worker.run(settings, ()) if "point" in message)
    for dtype, point in zip(("float32", "float64"), measured, strict=False):
        assert (point["name"], point["dtype"]) == ("128 nodes", dtype)
        assert max(point["speedup"]["ours"], point["speedup"]["ours-c"]) > 3
