"""Pictures by OpenGL, as a program that `film.render` runs: FOLDER/poses.json -> FOLDER/frames.raw, the pixels."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mujoco
import numpy as np
import numpy.typing as npt

from .clips import clip
from .stage import AZIMUTH_DEG, CENTRE_M, ELEVATION_DEG, HEIGHT, WIDTH, Stage
from .starts import Start


def main(folder: Path) -> None:
    asked = json.loads((folder / "poses.json").read_text(encoding="utf-8"))
    right, left = asked["payloads_kg"]
    start = Start(clip("train", 0, 0), asked["tilt_rad"], asked["heading_rad"], (right, left))
    frames = pictures(Stage(start), np.array(asked["poses"]), np.array(asked["reference"]))
    (folder / "frames.raw").write_bytes(frames.tobytes())


def pictures(stage: Stage, poses: npt.NDArray[np.float64], reference: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    """[T, HEIGHT, WIDTH, 3]"""
    camera = mujoco.MjvCamera()
    camera.lookat[:] = (0, 0, CENTRE_M)
    camera.azimuth, camera.elevation = AZIMUTH_DEG, ELEVATION_DEG
    camera.distance = 4.0  # beyond the bodies and above the floor; in this projection it makes nothing smaller
    camera.orthographic = 1
    with mujoco.Renderer(stage.model, HEIGHT, WIDTH) as renderer:
        found = []
        for ours, wanted in zip(poses, reference, strict=True):
            stage.pose(ours, wanted)
            renderer.update_scene(stage.data, camera)
            found.append(renderer.render())
    return np.stack(found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
