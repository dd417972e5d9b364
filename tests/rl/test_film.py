"""Pictures of the humanoid tasks, on machines with OpenGL."""

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("mjlab")

from body_transformer.rl.film import main
from body_transformer.video import opengl


def test_the_still_frames_show_the_robot(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("MUJOCO_GL", raising=False)  # mjlab sets it
    try:
        with opengl():
            main(tmp_path)
    except ValueError as error:
        pytest.skip(str(error))
    assert len(capsys.readouterr().out.splitlines()) == 3
    for name in ("humanoid-mod", "humanoid-hill", "humanoid-board"):
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert picture.size == (480, 360)
            pixels = np.asarray(picture.convert("RGB")).astype(int)
        assert (tmp_path / f"{name}.png").stat().st_size < 120_000
        skin = (np.abs(pixels[60:300, 180:300] - [160, 125, 90]).sum(-1) < 120).mean()
        assert skin > 0.05, f"{name}: the robot is not in the picture"
