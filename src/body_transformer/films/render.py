"""Pictures of a MuJoCo model along a motion.

They are drawn by a program of their own, `python -m body_transformer.films.render FOLDER`: FOLDER/model.mjb, poses.npy
and view.json -> frames.npy. MuJoCo decides how to draw when it is imported, and that was long ago in this process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
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
    shadows: bool = True
    """Without a graphics card they are most of the work."""
    width: int = 480
    height: int = 360


def pictures(
    model: mujoco.MjModel,
    poses: npt.NDArray[np.float64],
    view: View,
    on_done: Callable[[int], object] = lambda done: None,
) -> list[Frame]:
    """One of each pose [T, nq]; an error where MuJoCo cannot draw. `on_done` hears how many there are."""
    with drawing(), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mujoco.mj_saveModel(model, str(folder / "model.mjb"))
        np.save(folder / "poses.npy", poses)
        (folder / "view.json").write_text(json.dumps(asdict(view)), encoding="utf-8")
        _run([sys.executable, "-m", __name__, name], folder / "log.txt", on_done)
        return list(np.load(folder / "frames.npy", allow_pickle=False))


def _run(command: list[str], log: Path, on_done: Callable[[int], object]) -> None:
    """A program that prints a line whenever it has drawn a picture."""
    with (
        log.open("w+", encoding="utf-8", errors="replace") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as program,
    ):
        assert program.stdout is not None
        for done, _ in enumerate(program.stdout, start=1):
            on_done(done)
        if program.wait():
            errors.seek(0)
            why = errors.read().strip().splitlines() or [f"status {program.returncode}"]
            raise ValueError(no_film(why[-1]))


def draw(model: mujoco.MjModel, poses: npt.NDArray[np.float64], view: View) -> Iterator[Frame]:
    """In this process."""
    data, camera = mujoco.MjData(model), mujoco.MjvCamera()
    camera.distance, camera.azimuth, camera.elevation = view.distance_m, view.azimuth_deg, view.elevation_deg
    with mujoco.Renderer(model, view.height, view.width) as renderer:
        for pose in poses:
            data.qpos = pose
            mujoco.mj_forward(model, data)
            camera.lookat = data.body(view.body).xpos - [0, 0, view.below_m]
            renderer.update_scene(data, camera)
            renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = view.shadows
            yield renderer.render()


def main(folder: Path) -> None:
    model = mujoco.MjModel.from_binary_path(str(folder / "model.mjb"))
    poses = np.load(folder / "poses.npy", allow_pickle=False)
    view = View(**json.loads((folder / "view.json").read_text(encoding="utf-8")))
    frames = np.empty((len(poses), view.height, view.width, 3), dtype=np.uint8)
    for done, frame in enumerate(draw(model, poses, view)):
        frames[done] = frame
        print(done, flush=True)
    np.save(folder / "frames.npy", frames)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
