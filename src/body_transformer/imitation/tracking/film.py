"""Films of the tracking task: the policy's body on the left, its reference on the right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from ..task import Frame
from .clips import Doubles
from .drawing import draw_picture
from .stage import HEIGHT, WIDTH, Stage
from .starts import Start

RENDER_TIMEOUT_S = 60
"""A graphics driver that takes longer is one that hangs; a film takes seconds."""
_OFF = ("disable", "disabled", "off", "false", "0")
"""MuJoCo's own words for MUJOCO_GL."""


def film(start: Start, poses: Doubles, reference: Doubles) -> list[Frame]:
    """Pictures of the joint positions [T, J]: by MuJoCo's renderer where OpenGL is there, else drawn."""
    return render(start, poses, reference) or draw(start, poses, reference)


def draw(start: Start, poses: Doubles, reference: Doubles) -> list[Frame]:
    """Without OpenGL."""
    stage = Stage(start)
    return [draw_picture(stage.shapes(ours, wanted)) for ours, wanted in zip(poses, reference, strict=True)]


def render(start: Start, poses: Doubles, reference: Doubles) -> list[Frame] | None:
    """With OpenGL; None where there is none.

    In a process of its own: drivers may crash or hang, and MuJoCo decides on one for good when it is imported.
    """
    text = json.dumps(
        {
            "poses": poses.tolist(),
            "reference": reference.tolist(),
            "tilt_rad": start.tilt_rad,
            "heading_rad": start.heading_rad,
            "payloads_kg": start.payloads_kg,
        }
    )
    for platform in _platforms():
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "poses.json").write_text(text, encoding="utf-8")
            command = [sys.executable, "-m", f"{__package__}.render", folder]
            environment = os.environ | {"MUJOCO_GL": platform}
            try:
                run = subprocess.run(command, env=environment, capture_output=True, timeout=RENDER_TIMEOUT_S)
            except (OSError, subprocess.TimeoutExpired):
                continue
            if run.returncode == 0:
                pixels = np.frombuffer(Path(folder, "frames.raw").read_bytes(), dtype=np.uint8)
                return list(pixels.reshape(len(poses), HEIGHT, WIDTH, 3).copy())
    return None


def _platforms() -> tuple[str, ...]:
    """Values of MUJOCO_GL to try: the user's, else those that need no display."""
    asked = os.environ.get("MUJOCO_GL", "").lower().strip()
    if asked:
        return () if asked in _OFF else (asked,)
    return ("egl", "osmesa") if sys.platform == "linux" else ("",)
