"""Snippets, the parts into which long motion clips are cut, and lists of clips."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ....errors import listing
from ....size_limits import MAX_LIST_BYTES, read_at_most

REF_STEPS = (1, 2, 3, 4, 5)
"""Control steps ahead at which the reference is observed (MoCapAct's rollouts and the paper's)."""
MIN_STEPS = 9
"""An episode with a random start has more than this many steps left (MoCapAct's rollouts: 10 - 1)."""
MAX_SNIPPET_STEPS = 210
"""MoCapAct's longest snippet."""
OVERLAP_STEPS = 33
"""Overlap of neighbouring snippets: one second."""
SHORTEST = REF_STEPS[-1] + MIN_STEPS + 2
"""Fewest frames of a clip or snippet that can be tracked: with fewer, there is no random start."""
SNIPPET = re.compile(r"(?P<clip>.+)-(?P<start>\d+)-(?P<end>\d+)")
"""MoCapAct's name of a part of a clip: `CMU_009_12-165-363`."""


@dataclass(frozen=True)
class Snippet:
    """Frames `start` to `end` of a clip."""

    clip: str
    """Name of the clip: `CMU_009_12`."""
    start: int
    """First frame."""
    end: int
    """Last frame; at the end of a clip, one beyond it (dm_control's convention)."""

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"a snippet needs 0 <= start < end; got {self.start} and {self.end} of {self.clip!r}")
        if self.end - self.start < SHORTEST:
            raise ValueError(f"snippet {self.name!r} is too short to be tracked: it needs at least {SHORTEST} frames")

    @property
    def name(self) -> str:
        """The name as MoCapAct writes it: `CMU_009_12-165-363`."""
        return f"{self.clip}-{self.start}-{self.end}"


def cut(clip: str, num_frames: int, max_steps: int = MAX_SNIPPET_STEPS) -> list[Snippet]:
    """Cut a clip into as few snippets as possible, as MoCapAct does.

    They have equal lengths and an overlap of one second; the last one may be longer.
    """
    if max_steps < max(SHORTEST, OVERLAP_STEPS + 1):
        raise ValueError(f"a snippet needs at least {max(SHORTEST, OVERLAP_STEPS + 1)} steps; got {max_steps}")
    count = 1
    while True:
        length = (num_frames + OVERLAP_STEPS * (count - 1)) // count
        starts = [index * (length - OVERLAP_STEPS) for index in range(count)]
        if num_frames - starts[-1] <= max_steps:
            break
        count += 1
    ends = [*(start + length for start in starts[:-1]), num_frames]
    return [Snippet(clip, start, end) for start, end in zip(starts, ends, strict=True)]


def random_start(snippet: Snippet, rng: np.random.Generator) -> int:
    """Draw a frame with more than MIN_STEPS steps left, as dm_control does."""
    return int(rng.integers(snippet.start, snippet.end - REF_STEPS[-1] - MIN_STEPS))


def available(
    names: Sequence[str], lengths: Mapping[str, int], where: str, allow_missing: bool = False
) -> tuple[str, ...]:
    """Return the names of clips in a file with these `lengths`; a missing one is an error unless `allow_missing`."""
    missing = [name for name in names if name not in lengths]
    if missing and not allow_missing:
        raise ValueError(f"{len(missing)} of {len(names)} clips are not in {where}: {listing(missing)}")
    found = tuple(name for name in names if name in lengths)
    if not found:
        raise ValueError(f"none of the {len(names)} requested clips is in {where}; it has: {listing(lengths)}")
    short = [name for name in found if lengths[name] < SHORTEST]
    if short:
        raise ValueError(f"these clips of {where} have fewer than {SHORTEST} frames: {listing(short)}")
    return found


# -- lists of clips: text files with one name per line, as MoCapAct publishes its splits -------------------------------


def read_clip_list(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Read a list of clips, each once; a snippet stands for its clip, and # begins a comment."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such list of clips")
    try:
        lines = read_at_most(file, MAX_LIST_BYTES, "a list of clips").decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{file}: not a list of clips; it must be a text file with one name per line") from None
    names = [name for line in lines for name in line.split("#")[0].split()]
    if not names:
        raise ValueError(f"{file}: this list of clips is empty; it needs one name per line")
    return tuple(dict.fromkeys(match["clip"] if (match := SNIPPET.fullmatch(name)) else name for name in names))


def read_splits(
    train: str | os.PathLike[str] | None, validation: str | os.PathLike[str] | None
) -> dict[str, str] | None:
    """Return clip -> split from two lists, either of which may be None; None if both are."""
    if train is None and validation is None:
        return None
    splits: dict[str, str] = {}
    for path, split in ((train, "train"), (validation, "validation")):
        clips = () if path is None else read_clip_list(path)
        both = [clip for clip in clips if clip in splits]
        if both:
            raise ValueError(f"clips are in both {train} (training) and {validation} (validation): {listing(both)}")
        splits.update(dict.fromkeys(clips, split))
    return splits
