"""Files and folders that get their name only when they are whole."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def atomic_write(path: Path, content: str | Callable[[Path], object]) -> Path:
    """Writes under another name, then renames: whoever reads finds the old file or the new one, never half of it.

    `content` is a text, or whatever writes to the path that it is given.
    """
    unfinished = path.with_name(f".{uuid.uuid4().hex[:8]}.{path.name}")  # its suffix stays, as matplotlib reads it
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            unfinished.write_text(content, encoding="utf-8")
        else:
            content(unfinished)
        os.replace(unfinished, path)
        return path
    except OSError as error:
        raise OSError(f"cannot write {str(path)!r}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def replace_folder(new: Path, out: Path) -> None:
    """Renames; an old folder is removed only when the new one is in its place."""
    if not out.exists() or not any(out.iterdir()):
        os.replace(new, out)
        return
    old = new.with_name(f"{new.name}.old")
    os.replace(out, old)
    try:
        os.replace(new, out)
    except BaseException:
        os.replace(old, out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def sync(path: Path) -> None:
    """A file, or the names in a folder, are on the disk when this returns, even if the power fails."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
