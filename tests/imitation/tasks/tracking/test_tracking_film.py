"""Films of the tracking task, with OpenGL and without."""

import numpy as np
import pytest

from body_transformer import video
from body_transformer.experiment import load_experiment
from body_transformer.imitation.tasks.tracking import film
from body_transformer.imitation.tasks.tracking.film import COLORS, HEIGHT, WIDTH, Stage
from body_transformer.imitation.tasks.tracking.task import TrackingTask


@pytest.fixture(scope="module")
def task():
    return TrackingTask(load_experiment("demo").layout())


def zeros(obs):
    return np.zeros((len(obs), 21), dtype=np.float32)


def look_like_pictures(frames):
    return all(
        frame.shape == (HEIGHT, WIDTH, 3)
        and frame.dtype == np.uint8
        and len(np.unique(frame.reshape(-1, 3), axis=0)) > 20
        for frame in frames
    )


@pytest.mark.parametrize("gl", ["disabled", "nonsense"])
def test_without_opengl_the_film_is_drawn(task, monkeypatch, gl):
    monkeypatch.setenv("MUJOCO_GL", gl)
    frames = task.film(zeros, 0, "train")
    assert 2 <= len(frames) < 20  # it fails early
    assert look_like_pictures(frames)
    assert (frames[0] != frames[-1]).any()
    assert task.frames_hz == 25


def test_a_driver_that_hangs_is_not_used(task, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setattr(video, "TIMEOUT_S", 0.01)
    start = task.start("train", 0, 0)
    frames = film.film(start, start.clip.pos[:2], start.clip.pos[:2])
    assert len(frames) == 2
    assert look_like_pictures(frames)


def test_with_opengl_the_same_is_rendered(task, monkeypatch):
    monkeypatch.delenv("MUJOCO_GL")
    start = task.start("train", 0, 1)
    poses = start.clip.pos[:40:20]
    try:
        frames = film.rendered(start, poses, poses)
    except ValueError as error:
        pytest.skip(str(error))
    assert len(frames) == 2
    assert look_like_pictures(frames)
    for rendered, drawn in zip(frames, film.drawn(start, poses, poses), strict=True):
        ours, theirs = (bodies(frame) for frame in (rendered, drawn))
        assert (ours & theirs).sum() > 0.7 * (ours | theirs).sum()  # the bodies cover the same pixels


def bodies(frame):
    """Return the mask [H, W] of coloured pixels; sky, floor and loads are grey."""
    return np.ptp(frame.astype(int), axis=2) > 25


def test_the_policy_is_on_the_left_and_the_reference_on_the_right(task):
    start = task.start("train", 0, 0)
    (frame,) = film.drawn(start, start.clip.pos[:1], start.clip.pos[:1])
    red, blue = frame[..., 0].astype(int), frame[..., 2].astype(int)
    assert COLORS["policy"][0] > COLORS["policy"][2]
    assert COLORS["reference"][0] < COLORS["reference"][2]
    assert np.flatnonzero((red > blue + 40).any(0)).mean() < WIDTH / 2 - 40
    assert np.flatnonzero((blue > red + 40).any(0)).mean() > WIDTH / 2 + 40


def test_both_bodies_are_in_the_picture_at_every_tilt(task):
    for split in ("train", "unseen-tilt"):
        for index in range(12):
            start = task.start(split, 0, index)
            ends, _, _ = Stage(start).capsules(start.clip.pos[60], start.clip.pos[60])
            assert np.abs(ends[..., 0]).max() < 1.75
            assert np.abs(ends[..., 1]).max() < 1.25
            ours, wanted = np.split(ends, 2)
            np.testing.assert_allclose(ours[..., 1:], wanted[..., 1:], atol=1e-9)  # one pose: only aside of each other
            assert np.ptp(wanted[..., 0] - ours[..., 0]) < 1e-9
