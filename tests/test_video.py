"""Videos: the OpenGL platform, rendered frames and files."""

import os
import sys

import mujoco
import numpy as np
import pytest
from PIL import Image

from body_transformer import video
from body_transformer.video import View, check_format, opengl, platforms, render, write_video

# -- OpenGL ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_screen(monkeypatch):
    """Simulate Linux without a screen and without MUJOCO_GL."""
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


def only_works(monkeypatch, wanted):
    monkeypatch.setattr(video, "runs_with", lambda platform, command: platform == wanted)


def test_the_users_choice_is_the_only_platform(no_screen, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", " OSMesa ")
    assert platforms() == ("osmesa",)


@pytest.mark.parametrize("word", video.OFF)
def test_rendering_can_be_turned_off(no_screen, monkeypatch, word):
    monkeypatch.setenv("MUJOCO_GL", word.upper())
    assert platforms() == ()
    with pytest.raises(ValueError, match=f"cannot render here; MUJOCO_GL={word} turns it off"), opengl():
        pass


def test_a_window_is_tried_only_with_a_screen(no_screen, monkeypatch):
    assert platforms() == ("egl", "osmesa")
    monkeypatch.setenv("DISPLAY", ":0")
    assert platforms() == ("egl", "glfw", "osmesa")


def test_the_first_working_platform_is_set_inside_the_context_only(no_screen, monkeypatch):
    only_works(monkeypatch, "osmesa")
    with opengl():
        assert os.environ["MUJOCO_GL"] == "osmesa"
    assert "MUJOCO_GL" not in os.environ
    monkeypatch.setenv("MUJOCO_GL", "OSMESA")
    with opengl():
        assert os.environ["MUJOCO_GL"] == "osmesa"
    assert os.environ["MUJOCO_GL"] == "OSMESA"


def test_without_a_working_platform_the_error_lists_those_tried(no_screen, monkeypatch):
    only_works(monkeypatch, None)
    with pytest.raises(ValueError, match=r"no film: .*tried egl, osmesa\. It needs OpenGL: .*MUJOCO_GL"), opengl():
        pass
    assert "MUJOCO_GL" not in os.environ


def test_a_platform_whose_program_fails_or_hangs_does_not_work(monkeypatch):
    program = "import os, sys; sys.exit(os.environ['MUJOCO_GL'] != 'egl')"
    assert video.runs_with("egl", [sys.executable, "-c", program])
    assert not video.runs_with("glfw", [sys.executable, "-c", program])
    monkeypatch.setattr(video, "TIMEOUT_S", 0.2)
    assert not video.runs_with("egl", [sys.executable, "-c", "import time; time.sleep(60)"])


# -- frames ------------------------------------------------------------------------------------------------------------

MODEL = """
<mujoco>
  <asset>
    <texture name="checks" type="2d" builtin="checker" rgb1="1 1 1" rgb2="0 0 1" width="64" height="64"/>
    <material name="checks" texture="checks" texrepeat="4 4" texuniform="true"/>
  </asset>
  <worldbody>
    <light pos="0 0 5" type="directional"/>
    <geom type="plane" size="0 0 1" material="checks"/>
    <body name="ball" pos="0 0 0.5"><joint type="slide" axis="1 0 0"/><geom size="0.3" rgba="1 0 0 1"/></body>
  </worldbody>
</mujoco>
"""


@pytest.fixture(scope="module")
def some_opengl():
    """Select a platform that works, even if MUJOCO_GL turns it off; skip without one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MUJOCO_GL", raising=False)
        try:
            with opengl():
                yield
        except ValueError as error:
            pytest.skip(str(error))


@pytest.fixture(scope="module")
def frames(some_opengl):
    model, counts = mujoco.MjModel.from_xml_string(MODEL), []
    view = View("ball", width=96, height=64, distance_m=3.0)
    found = render(model, np.array([[0.0], [0.1], [100.0]]), view, counts.append)
    assert counts == [1, 2, 3]
    return found


def test_each_pose_gives_one_frame(frames):
    assert [frame.shape for frame in frames] == [(64, 96, 3)] * 3
    assert all(frame.dtype == np.uint8 for frame in frames)


def test_the_camera_follows_the_body(frames):
    for frame in frames:
        red, _, blue = frame[28:36, 44:52].astype(int).mean((0, 1))
        assert red > 2 * blue
    assert (frames[0] != frames[1]).any()  # the floor moves


def test_shadows_can_be_left_out(some_opengl):
    model = mujoco.MjModel.from_xml_string(MODEL)
    with_them, without = (render(model, np.zeros((1, 1)), View("ball", shadows=wanted))[0] for wanted in (True, False))
    assert without.mean() > with_them.mean()


def test_an_unknown_body_is_named(some_opengl):
    with pytest.raises(ValueError, match="bowl"):
        render(mujoco.MjModel.from_xml_string(MODEL), np.zeros((1, 1)), View("bowl"))


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["gif", "webp", "png"])
def test_a_video_keeps_its_frames_and_their_rate(tmp_path, ending):
    rng = np.random.default_rng(0)
    write_video(tmp_path / "new" / f"film.{ending}", list(rng.integers(0, 255, (5, 16, 24, 3), dtype=np.uint8)), 25.0)
    with Image.open(tmp_path / "new" / f"film.{ending}") as film:
        assert film.n_frames == 5
        assert film.size == (24, 16)
        film.seek(1)
        film.load()
        assert film.info["duration"] == 40
    assert [file.name for file in (tmp_path / "new").iterdir()] == [f"film.{ending}"]


def test_an_unknown_format_and_an_empty_video_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"unknown film format '\.avi'"):
        check_format(tmp_path / "film.avi")
    with pytest.raises(ValueError, match="at least one frame"):
        write_video(tmp_path / "film.gif", [], 25.0)


def test_an_mp4_video_has_its_frames_and_even_sizes(tmp_path):
    import imageio.v3 as iio

    frames = [np.full((33, 48, 3), 20 * level, np.uint8) for level in range(6)]
    write_video(tmp_path / "film.mp4", frames, 25.0)
    shown = iio.imread(tmp_path / "film.mp4", plugin="FFMPEG")
    assert len(shown) == 6
    assert shown.shape[2] == 48
    assert shown.shape[1] % 2 == 0
    assert iio.immeta(tmp_path / "film.mp4", plugin="FFMPEG")["fps"] == 25


def test_an_mp4_video_without_ffmpeg_is_refused_before_the_work(tmp_path, monkeypatch):
    import imageio_ffmpeg

    def missing():
        raise RuntimeError("No ffmpeg exe could be found")

    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", missing)
    with pytest.raises(ValueError, match="needs the program ffmpeg, which was not found"):
        check_format(tmp_path / "film.mp4")
