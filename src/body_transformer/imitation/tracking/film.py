"""Films of the tracking task: the policy's body on the left, its reference on the right."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from ...video import Frame, platforms, runs_with
from .clips import Doubles
from .drawing import draw_picture
from .stage import HEIGHT, WIDTH, Stage
from .starts import Start


def film(start: Start, poses: Doubles, reference: Doubles) -> list[Frame]:
    """Pictures of the joint positions [T, J]: by MuJoCo's renderer where OpenGL is there, else drawn."""
    return render(start, poses, reference) or draw(start, poses, reference)


def draw(start: Start, poses: Doubles, reference: Doubles) -> list[Frame]:
    """Without OpenGL."""
    stage = Stage(start)
    return [draw_picture(stage.shapes(ours, wanted)) for ours, wanted in zip(poses, reference, strict=True)]


def render(start: Start, poses: Doubles, reference: Doubles) -> list[Frame] | None:
    """With OpenGL; None where there is none."""
    text = json.dumps(
        {
            "poses": poses.tolist(),
            "reference": reference.tolist(),
            "tilt_rad": start.tilt_rad,
            "heading_rad": start.heading_rad,
            "payloads_kg": start.payloads_kg,
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "poses.json").write_text(text, encoding="utf-8")
        command = (sys.executable, "-m", f"{__package__}.render", folder)
        if not any(runs_with(platform, command) for platform in platforms()):
            return None
        pixels = np.frombuffer(Path(folder, "frames.raw").read_bytes(), dtype=np.uint8)
        return list(pixels.reshape(len(poses), HEIGHT, WIDTH, 3).copy())
