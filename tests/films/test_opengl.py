"""Which OpenGL is tried, and what is said where none works."""

import os
import sys

import pytest

from body_transformer.films import opengl
from body_transformer.films.opengl import drawing, platforms


@pytest.fixture(autouse=True)
def linux_without_a_screen(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


def only_works(monkeypatch, wanted):
    monkeypatch.setattr(opengl, "runs_well", lambda command, platform: platform == wanted)


def test_the_users_choice_is_the_only_one(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", " OSMesa ")
    assert platforms() == ("osmesa",)


@pytest.mark.parametrize("word", opengl.OFF)
def test_drawing_can_be_turned_off(monkeypatch, word):
    monkeypatch.setenv("MUJOCO_GL", word.upper())
    assert platforms() == ()
    with pytest.raises(ValueError, match=f"cannot draw here; MUJOCO_GL={word} forbids it"), drawing():
        pass


def test_a_window_is_tried_only_where_there_is_a_screen(monkeypatch):
    assert platforms() == ("egl", "osmesa")
    monkeypatch.setenv("DISPLAY", ":0")
    assert platforms() == ("egl", "glfw", "osmesa")


def test_the_first_that_works_is_set_for_a_while(monkeypatch):
    only_works(monkeypatch, "osmesa")
    with drawing():
        assert os.environ["MUJOCO_GL"] == "osmesa"
    assert "MUJOCO_GL" not in os.environ
    monkeypatch.setenv("MUJOCO_GL", "OSMESA")
    with drawing():
        assert os.environ["MUJOCO_GL"] == "osmesa"
    assert os.environ["MUJOCO_GL"] == "OSMESA"


def test_where_nothing_works_the_error_says_what_was_tried(monkeypatch):
    only_works(monkeypatch, None)
    with pytest.raises(ValueError, match=r"no film: .*tried egl, osmesa\. It needs OpenGL: .*MUJOCO_GL"), drawing():
        pass
    assert "MUJOCO_GL" not in os.environ


def test_a_program_that_fails_or_hangs_does_not_run_well(monkeypatch):
    program = "import os, sys; sys.exit(os.environ['MUJOCO_GL'] != 'egl')"
    assert opengl.runs_well([sys.executable, "-c", program], "egl")
    assert not opengl.runs_well([sys.executable, "-c", program], "glfw")
    monkeypatch.setattr(opengl, "TIMEOUT_S", 0.2)
    assert not opengl.runs_well([sys.executable, "-c", "import time; time.sleep(60)"], "egl")
