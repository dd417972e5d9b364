"""Which part of which clip: names, and how a long clip is cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import listing
from ..clip_lists import SNIPPET

REF_STEPS = (1, 2, 3, 4, 5)
"""How far ahead the reference is seen, in control steps (MoCapAct's rollouts and the paper's)."""
MIN_STEPS = 9
"""An episode that starts at random has more steps than these left (MoCapAct's rollouts: 10 - 1)."""
MAX_SNIPPET_STEPS = 210
"""MoCapAct's longest snippet."""
OVERLAP_STEPS = 33
"""What neighbouring snippets share: one second."""
SHORTEST = REF_STEPS[-1] + MIN_STEPS + 2
"""A clip of fewer frames has no random start."""


@dataclass(frozen=True)
class Snippet:
    """Frames `start` to `end` of a clip."""

    clip: str
    """The clip's name: `CMU_009_12`."""
    start: int
    """The first frame."""
    end: int
    """The last frame, or one beyond where that is the clip's end (dm_control's way to count)."""

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"a snippet needs 0 <= start < end; got {self.start} and {self.end} of {self.clip!r}")
        if self.end - self.start < SHORTEST:
            raise ValueError(f"snippet {self.name!r} is too short to be tracked: it needs at least {SHORTEST} frames")

    @property
    def name(self) -> str:
        """As MoCapAct writes it: `CMU_009_12-165-363`."""
        return f"{self.clip}-{self.start}-{self.end}"

    @classmethod
    def parse(cls, text: str) -> Snippet:
        """Reads what `name` writes."""
        found = SNIPPET.fullmatch(text)
        if not found:
            raise ValueError(f"a snippet is written CLIP-START-END, as in CMU_009_12-165-363; got {text!r}")
        return cls(found["clip"], int(found["start"]), int(found["end"]))


def cut(clip: str, num_frames: int, max_steps: int = MAX_SNIPPET_STEPS) -> list[Snippet]:
    """A clip in as few snippets as MoCapAct makes of it: alike in length, each a second into the next, the last one
    with what remains."""
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


def among(names: Sequence[str], lengths: Mapping[str, int], where: str, allow_missing: bool = False) -> tuple[str, ...]:
    """Those names that have a length: all of them, or as many as there are if some may be missing."""
    missing = [name for name in names if name not in lengths]
    if missing and not allow_missing:
        raise ValueError(f"{len(missing)} of {len(names)} clips are not in {where}: {listing(missing)}")
    there = tuple(name for name in names if name in lengths)
    if not there:
        raise ValueError(f"none of the {len(names)} clips asked for is in {where}; it has: {listing(lengths)}")
    short = [name for name in there if lengths[name] < SHORTEST]
    if short:
        raise ValueError(f"these clips of {where} have fewer than {SHORTEST} frames: {listing(short)}")
    return there
