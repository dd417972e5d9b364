"""Pictures by OpenGL, as a program: reads FOLDER/poses.npz, writes FOLDER/frames.npy. `film.render` runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import mujoco
import numpy as np
import numpy.typing as npt

from .clips import clip
from .stage import AZIMUTH_DEG, CENTRE_M, ELEVATION_DEG, HEIGHT, WIDTH, Stage
from .starts import Start


def main(folder: Path) -> None:
    with np.load(folder / "poses.npz", allow_pickle=False) as file:
        right, left = file["payloads_kg"].tolist()
        start = Start(clip("train", 0, 0), float(file["tilt_rad"]), float(file["heading_rad"]), (right, left))
        frames = pictures(Stage(start), file["poses"], file["reference"])
    aside = folder / "frames.part.npy"
    np.save(aside, frames, allow_pickle=False)
    aside.rename(folder / "frames.npy")


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
