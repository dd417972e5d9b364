"""Pictures become a film on disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from ..errors import unknown
from . import Frame

ANIMATED = (".gif", ".webp", ".png")


def write_film(file: Path, frames: Sequence[Frame], frames_hz: float) -> None:
    """The format is the file's ending; written aside, then renamed."""
    if not frames:
        raise ValueError("a film needs at least one picture; got none")
    check_format(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{uuid.uuid4().hex[:8]}{file.suffix}")
    try:
        if file.suffix == ".mp4":
            _mp4(aside, frames, frames_hz)
        else:
            first, *others = [Image.fromarray(frame) for frame in frames]
            first.save(aside, save_all=True, append_images=others, duration=round(1000 / frames_hz), loop=0)
        os.replace(aside, file)
    finally:
        aside.unlink(missing_ok=True)


def check_format(file: Path) -> None:
    """Before the rollout that would be filmed."""
    if file.suffix not in (*ANIMATED, ".mp4"):
        raise ValueError(unknown("film format", file.suffix, (*ANIMATED, ".mp4")))
    if file.suffix == ".mp4" and shutil.which("ffmpeg") is None:
        raise ValueError("a film in .mp4 needs the program ffmpeg, which is not there; .webp and .gif need nothing")


def _mp4(file: Path, frames: Sequence[Frame], frames_hz: float) -> None:
    height, width, _ = frames[0].shape
    size = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(frames_hz), "-i", "-"]
    made = subprocess.run(
        ["ffmpeg", "-y", "-loglevel", "error", *size, "-pix_fmt", "yuv420p", str(file)],
        input=b"".join(frame.tobytes() for frame in frames),
        capture_output=True,
        check=False,
    )
    if made.returncode:
        raise ValueError(f"ffmpeg could not write the film: {made.stderr.decode(errors='replace').strip()}")
