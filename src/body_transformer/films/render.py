"""Pictures of a MuJoCo model along a motion.

They are drawn by a program of their own, `python -m body_transformer.films.render FOLDER`: FOLDER/model.mjb, poses.npy
and view.json -> frames.npy. MuJoCo decides how to draw when it is imported, and that was long ago in this process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import mujoco
import numpy as np
import numpy.typing as npt

from . import Frame
from .opengl import drawing, no_film


@dataclass(frozen=True)
class View:
    """What is seen, and from where."""

    body: str
    """The camera goes along with it."""
    below_m: float = 0.0
    """The middle of the picture is so much lower than the body."""
    distance_m: float = 4.0
    azimuth_deg: float = 140.0
    """Where the camera looks, from above: 0 along x, 90 along y."""
    elevation_deg: float = -15.0
    width: int = 480
    height: int = 360


def pictures(model: mujoco.MjModel, poses: npt.NDArray[np.float64], view: View) -> list[Frame]:
    """One of each pose [T, nq]; an error where MuJoCo cannot draw."""
    with drawing(), tempfile.TemporaryDirectory() as folder:
        mujoco.mj_saveModel(model, str(Path(folder, "model.mjb")))
        np.save(Path(folder, "poses.npy"), poses)
        Path(folder, "view.json").write_text(json.dumps(asdict(view)), encoding="utf-8")
        command = [sys.executable, "-m", __name__, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(no_film((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]))
        return list(np.load(Path(folder, "frames.npy"), allow_pickle=False))


def draw(model: mujoco.MjModel, poses: npt.NDArray[np.float64], view: View) -> npt.NDArray[np.uint8]:
    """[T, height, width, 3], in this process."""
    data, camera = mujoco.MjData(model), mujoco.MjvCamera()
    camera.distance, camera.azimuth, camera.elevation = view.distance_m, view.azimuth_deg, view.elevation_deg
    frames = np.empty((len(poses), view.height, view.width, 3), dtype=np.uint8)
    with mujoco.Renderer(model, view.height, view.width) as renderer:
        for pose, frame in zip(poses, frames, strict=True):
            data.qpos = pose
            mujoco.mj_forward(model, data)
            camera.lookat = data.body(view.body).xpos - [0, 0, view.below_m]
            renderer.update_scene(data, camera)
            renderer.render(out=frame)
    return frames


def main(folder: Path) -> None:
    model = mujoco.MjModel.from_binary_path(str(folder / "model.mjb"))
    poses = np.load(folder / "poses.npy", allow_pickle=False)
    view = View(**json.loads((folder / "view.json").read_text(encoding="utf-8")))
    np.save(folder / "frames.npy", draw(model, poses, view))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
