"""Lists of motion clips: text files with a name a line, as MoCapAct publishes its splits."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..errors import listing

SNIPPET = re.compile(r"(?P<clip>.+)-(?P<start>\d+)-(?P<end>\d+)")
"""How MoCapAct names a part of a clip: `CMU_009_12-165-363`."""


def read_clip_list(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The clips that a file names, each once; a snippet counts as its clip, what follows a # is a remark."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"{file}: there is no such list of clips")
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{file}: this is no list of clips, which is a text file with a name a line") from None
    names = [name for line in lines for name in line.split("#")[0].split()]
    if not names:
        raise ValueError(f"{file}: this list of clips is empty; it needs a name a line")
    return tuple(dict.fromkeys(match["clip"] if (match := SNIPPET.fullmatch(name)) else name for name in names))


def read_splits(
    train: str | os.PathLike[str] | None, validation: str | os.PathLike[str] | None
) -> dict[str, str] | None:
    """Clip -> split, of one list or of two that share no clip; None where there is none."""
    if train is None and validation is None:
        return None
    splits: dict[str, str] = {}
    for path, split in ((train, "train"), (validation, "validation")):
        clips = () if path is None else read_clip_list(path)
        both = [clip for clip in clips if clip in splits]
        if both:
            raise ValueError(
                f"clips for training and for validation at once, in {train} and {validation}: {listing(both)}"
            )
        splits.update(dict.fromkeys(clips, split))
    return splits
