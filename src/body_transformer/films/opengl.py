"""OpenGL for films: which of MuJoCo's ways to it works on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

VARIABLE = "MUJOCO_GL"
OFF = ("disable", "disabled", "off", "false", "0")
"""MuJoCo's own words for not drawing at all."""
TIMEOUT_S = 60
"""A graphics driver that takes longer is one that hangs; a film takes seconds."""
_PICTURE = """
import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco/>")
with mujoco.Renderer(model, 16, 16) as renderer:
    renderer.update_scene(mujoco.MjData(model))
    renderer.render()
"""


def platforms() -> tuple[str, ...]:
    """Values of MUJOCO_GL to try: the user's, else those that may work here, software last."""
    asked = _asked()
    if asked:
        return () if asked in OFF else (asked,)
    if sys.platform != "linux":
        return ("glfw",)
    has_screen = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return ("egl", "glfw", "osmesa") if has_screen else ("egl", "osmesa")


def runs_well(command: Sequence[str], platform: str) -> bool:
    """Runs a program that draws by this platform; whether it came to its end.

    In a process of its own: drivers may crash or hang, and MuJoCo decides on one for good when it is imported.
    """
    environment = os.environ | {VARIABLE: platform}
    try:
        return subprocess.run(command, env=environment, capture_output=True, timeout=TIMEOUT_S).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@contextmanager
def drawing() -> Iterator[None]:
    """MUJOCO_GL is something that draws here, for as long as this is entered; an error where nothing does."""
    tried = platforms()
    picture = (sys.executable, "-c", _PICTURE)
    working = next((platform for platform in tried if runs_well(picture, platform)), None)
    if working is None:
        raise ValueError(no_film(f"tried {', '.join(tried)}" if tried else f"{VARIABLE}={_asked()} forbids it"))
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = working
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def no_film(why: str) -> str:
    """What to say where nothing can be drawn."""
    return (
        f"no film: MuJoCo cannot draw here; {why}. It needs OpenGL: a graphics driver (egl), the package libosmesa6 "
        f"(osmesa) or a screen (glfw); the environment variable {VARIABLE} chooses one"
    )


def _asked() -> str:
    """What the user wants, as MuJoCo reads it."""
    return os.environ.get(VARIABLE, "").lower().strip()
