"""Pictures along a motion, where there is OpenGL; and pictures to files."""

import mujoco
import numpy as np
import pytest
from PIL import Image

from body_transformer.films.opengl import drawing
from body_transformer.films.render import View, pictures
from body_transformer.films.write import check_format, write_film

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
def opengl():
    """Some that works: the other tests go without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MUJOCO_GL", raising=False)
        try:
            with drawing():
                yield
        except ValueError as error:
            pytest.skip(str(error))


@pytest.fixture(scope="module")
def frames(opengl):
    model, heard = mujoco.MjModel.from_xml_string(MODEL), []
    view = View("ball", width=96, height=64, distance_m=3.0)
    found = pictures(model, np.array([[0.0], [0.1], [100.0]]), view, heard.append)
    assert heard == [1, 2, 3]
    return found


def test_there_is_one_picture_of_each_pose(frames):
    assert [frame.shape for frame in frames] == [(64, 96, 3)] * 3
    assert all(frame.dtype == np.uint8 for frame in frames)


def test_the_camera_goes_along_with_the_body(frames):
    for frame in frames:
        red, _, blue = frame[28:36, 44:52].astype(int).mean((0, 1))
        assert red > 2 * blue
    assert (frames[0] != frames[1]).any()  # the floor goes by


def test_shadows_can_be_left_out(opengl):
    model = mujoco.MjModel.from_xml_string(MODEL)
    with_them, without = (
        pictures(model, np.zeros((1, 1)), View("ball", shadows=wanted))[0] for wanted in (True, False)
    )
    assert without.mean() > with_them.mean()


def test_where_mujoco_cannot_draw_it_is_said(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "off")
    with pytest.raises(ValueError, match="no film: MuJoCo cannot draw here"):
        pictures(mujoco.MjModel.from_xml_string(MODEL), np.zeros((1, 1)), View("ball"))


def test_a_body_that_is_not_there_is_said(opengl):
    with pytest.raises(ValueError, match="bowl"):
        pictures(mujoco.MjModel.from_xml_string(MODEL), np.zeros((1, 1)), View("bowl"))


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["gif", "webp", "png"])
def test_a_film_has_its_pictures_and_its_speed(tmp_path, ending):
    rng = np.random.default_rng(0)
    write_film(tmp_path / "new" / f"film.{ending}", list(rng.integers(0, 255, (5, 16, 24, 3), dtype=np.uint8)), 25.0)
    with Image.open(tmp_path / "new" / f"film.{ending}") as film:
        assert film.n_frames == 5
        assert film.size == (24, 16)
        film.seek(1)
        film.load()
        assert film.info["duration"] == 40
    assert [file.name for file in (tmp_path / "new").iterdir()] == [f"film.{ending}"]


def test_an_unknown_format_and_an_empty_film_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"unknown film format '\.avi'"):
        check_format(tmp_path / "film.avi")
    with pytest.raises(ValueError, match="at least one picture"):
        write_film(tmp_path / "film.gif", [], 25.0)
