"""Videos of MuJoCo models: a working OpenGL platform, rendered frames and video files.

MuJoCo selects its OpenGL platform once, when it is imported. Rendering therefore runs in a process of its own,
`python -m body_transformer.video FOLDER`, which reads model.mjb, poses.npy and view.json and writes frames.npy.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .errors import unknown
from .files import atomic_write

if TYPE_CHECKING:
    import mujoco

Frame = npt.NDArray[np.uint8]
"""[height, width, 3]"""

# -- OpenGL ------------------------------------------------------------------------------------------------------------

VARIABLE = "MUJOCO_GL"
OFF = ("disable", "disabled", "off", "false", "0")
"""Values of MUJOCO_GL that turn rendering off."""
TIMEOUT_S = 60
"""Time after which a graphics driver is considered to hang. Drawing a whole film takes seconds."""
_PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco/>")
with mujoco.Renderer(model, 16, 16) as renderer:
    renderer.update_scene(mujoco.MjData(model))
    renderer.render()
"""


def platforms() -> tuple[str, ...]:
    """Return the values of MUJOCO_GL to try: the user's choice, or all that may work, software rendering last."""
    chosen = _user_choice()
    if chosen:
        return () if chosen in OFF else (chosen,)
    if sys.platform != "linux":
        return ("glfw",)
    has_screen = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return ("egl", "glfw", "osmesa") if has_screen else ("egl", "osmesa")


def runs_with(platform: str, command: Sequence[str]) -> bool:
    """Run a rendering program with this value of MUJOCO_GL and return whether it succeeded.

    The program is a separate process because graphics drivers may crash or hang.
    """
    environment = os.environ | {VARIABLE: platform}
    try:
        return subprocess.run(command, env=environment, capture_output=True, timeout=TIMEOUT_S).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@contextmanager
def opengl() -> Iterator[None]:
    """Set MUJOCO_GL to a platform that renders on this machine; raise ValueError if there is none."""
    tried = platforms()
    working = next((platform for platform in tried if runs_with(platform, (sys.executable, "-c", _PROBE))), None)
    if working is None:
        why = f"tried {', '.join(tried)}" if tried else f"{VARIABLE}={_user_choice()} turns it off"
        raise ValueError(no_opengl(why))
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = working
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def no_opengl(why: str) -> str:
    """Return the error message for a machine on which MuJoCo cannot render."""
    return (
        f"no film: MuJoCo cannot render here; {why}. It needs OpenGL: a graphics driver (egl), the package libosmesa6 "
        f"(osmesa) or a screen (glfw). The environment variable {VARIABLE} selects one of them"
    )


def _user_choice() -> str:
    """Return the value of MUJOCO_GL, normalised as MuJoCo does."""
    return os.environ.get(VARIABLE, "").lower().strip()


# -- frames ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """The camera and the size of the picture."""

    body: str
    """Body that the camera follows."""
    below_m: float = 0.0
    """Height of the body above the centre of the picture."""
    distance_m: float = 4.0
    azimuth_deg: float = 140.0
    """Viewing direction seen from above: 0 is along x, 90 along y."""
    elevation_deg: float = -15.0
    shadows: bool = True
    """Shadows take most of the time without a graphics card."""
    width: int = 480
    height: int = 360


def render(
    model: mujoco.MjModel,
    poses: npt.NDArray[np.float64],
    view: View,
    on_frame: Callable[[int], object] = lambda count: None,
) -> list[Frame]:
    """Return one frame per pose [T, nq]; `on_frame` receives the number of frames so far.

    Raises:
        ValueError: MuJoCo cannot render on this machine.
    """
    import mujoco

    with opengl(), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mujoco.mj_saveModel(model, str(folder / "model.mjb"))
        np.save(folder / "poses.npy", poses)
        (folder / "view.json").write_text(json.dumps(asdict(view)), encoding="utf-8")
        _run([sys.executable, "-m", __name__, name], folder / "log.txt", on_frame)
        return list(np.load(folder / "frames.npy", allow_pickle=False))


def _run(command: list[str], log: Path, on_frame: Callable[[int], object]) -> None:
    """Run the rendering process, which prints one line per frame."""
    with (
        log.open("w+", encoding="utf-8", errors="replace") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        for count, _ in enumerate(process.stdout, start=1):
            on_frame(count)
        if process.wait():
            errors.seek(0)
            why = errors.read().strip().splitlines() or [f"status {process.returncode}"]
            raise ValueError(no_opengl(why[-1]))


def main(folder: Path) -> None:
    """Render the poses of a folder in this process."""
    import mujoco

    model = mujoco.MjModel.from_binary_path(str(folder / "model.mjb"))
    poses = np.load(folder / "poses.npy", allow_pickle=False)
    view = View(**json.loads((folder / "view.json").read_text(encoding="utf-8")))
    frames = np.empty((len(poses), view.height, view.width, 3), dtype=np.uint8)
    data, camera = mujoco.MjData(model), mujoco.MjvCamera()
    camera.distance, camera.azimuth, camera.elevation = view.distance_m, view.azimuth_deg, view.elevation_deg
    with mujoco.Renderer(model, view.height, view.width) as renderer:
        for index, pose in enumerate(poses):
            data.qpos = pose
            mujoco.mj_forward(model, data)
            camera.lookat = data.body(view.body).xpos - [0, 0, view.below_m]
            renderer.update_scene(data, camera)
            renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = view.shadows
            frames[index] = renderer.render()
            print(index, flush=True)
    np.save(folder / "frames.npy", frames)


# -- files -------------------------------------------------------------------------------------------------------------

FORMATS = (".gif", ".webp", ".png", ".mp4")
"""File endings of videos; .png is an animated PNG."""


def write_video(file: Path, frames: Sequence[Frame], frames_hz: float) -> None:
    """Write a video in the format of the file's ending."""
    import imageio.v3 as iio

    if not frames:
        raise ValueError("a film needs at least one frame; got none")
    check_format(file)
    if file.suffix == ".mp4":
        options: dict[str, Any] = {"plugin": "FFMPEG", "fps": frames_hz, "macro_block_size": 2}  # even sizes
    else:
        options = {"plugin": "pillow", "duration": round(1000 / frames_hz), "loop": 0}
    atomic_write(file, lambda unfinished: iio.imwrite(unfinished, np.stack(frames), **options))


def check_format(file: Path) -> None:
    """Raise ValueError if no video can be written in the format of the file's ending."""
    if file.suffix not in FORMATS:
        raise ValueError(unknown("film format", file.suffix, FORMATS))
    if file.suffix == ".mp4":
        import imageio_ffmpeg

        try:
            imageio_ffmpeg.get_ffmpeg_exe()
        except RuntimeError:
            raise ValueError(
                "a film in .mp4 needs the program ffmpeg, which was not found: install it, or use .webp or .gif"
            ) from None


if __name__ == "__main__":
    main(Path(sys.argv[1]))
