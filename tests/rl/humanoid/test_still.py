"""A still frame, where there is OpenGL."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mjlab")

import body_transformer

PROGRAM = """
import numpy as np
from body_transformer.rl.humanoid.still import frame
from body_transformer.rl.registry import make_env_cfg
for name in ("humanoid-mod", "humanoid-hill", "humanoid-board"):
    picture = frame(make_env_cfg(name, 1, 0), width=160, height=120)
    assert picture.shape == (120, 160, 3) and picture.dtype == np.uint8
    skin = (np.abs(picture[20:100, 60:100].astype(int) - [160, 125, 90]).sum(-1) < 120).mean()
    assert skin > 0.05, f"{name}: the robot is not in the picture ({skin})"
"""
PROBE = """
import mujoco
with mujoco.Renderer(mujoco.MjModel.from_xml_string("<mujoco/>"), 16, 16) as renderer:
    renderer.render()
"""


def run(program: str, platform: str) -> subprocess.CompletedProcess[str]:
    path = str(Path(body_transformer.__file__).parents[1])
    environment = os.environ | {"MUJOCO_GL": platform, "PYTHONPATH": path}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_a_still_frame_shows_the_robot():
    platform = next((name for name in ("egl", "osmesa") if run(PROBE, name).returncode == 0), None)
    if platform is None:
        pytest.skip("no OpenGL on this machine")
    drawn = run(PROGRAM, platform)
    assert drawn.returncode == 0, drawn.stderr
