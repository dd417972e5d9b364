"""Films of the tracking task."""

import numpy as np
import pytest

from body_transformer.experiment import load_experiment
from body_transformer.imitation.tasks.tracking.film import COLORS, HEIGHT, WIDTH, Figure, film
from body_transformer.imitation.tasks.tracking.task import TrackingTask


@pytest.fixture(scope="module")
def task():
    return TrackingTask(load_experiment("demo").layout())


def test_a_film_shows_the_rollout_without_opengl(task, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    frames = task.film(lambda obs: np.zeros((len(obs), 21), np.float32), 0, "train")
    assert 2 <= len(frames) < 20  # it fails early
    for frame in frames:
        assert (frame.shape, frame.dtype) == ((HEIGHT, WIDTH, 3), np.uint8)
        assert len(np.unique(frame.reshape(-1, 3), axis=0)) > 20
    assert (frames[0] != frames[-1]).any()
    assert task.frames_hz == 25


def test_the_policy_is_on_the_left_and_the_reference_on_the_right(task):
    start = task.start("train", 0, 0)
    (frame,) = film(start, start.clip.pos[:1], start.clip.pos[:1])
    red, blue = frame[..., 0].astype(int), frame[..., 2].astype(int)
    assert COLORS["policy"][0] > COLORS["policy"][2]
    assert COLORS["reference"][0] < COLORS["reference"][2]
    assert np.flatnonzero((red > blue + 40).any(0)).mean() < WIDTH / 2 - 40
    assert np.flatnonzero((blue > red + 40).any(0)).mean() > WIDTH / 2 + 40


def test_both_bodies_are_in_the_picture_at_every_tilt(task):
    for split in ("train", "unseen-tilt"):
        for index in range(12):
            start = task.start(split, 0, index)
            ours, wanted = (Figure(start, name).ends(start.clip.pos[60]) for name in COLORS)
            for ends in (ours, wanted):
                assert np.abs(ends[..., 0]).max() < 1.75
                assert np.abs(ends[..., 1]).max() < 1.25
            np.testing.assert_allclose(ours[..., 1:], wanted[..., 1:], atol=1e-9)  # the same pose, displaced sideways
            assert np.ptp(wanted[..., 0] - ours[..., 0]) < 1e-9
