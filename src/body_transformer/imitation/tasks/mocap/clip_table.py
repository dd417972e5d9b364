"""The table of recorded clips: snippets, rollouts, successes and transitions of each."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from ....errors import import_extra
from .snippets import SNIPPET

COUNTS = ("snippets", "rollouts", "complete", "transitions")


@dataclass(frozen=True)
class ClipRow:
    """The rollouts of a clip."""

    clip: str
    split: str
    snippets: int
    rollouts: int
    complete: int
    """Rollouts that reached the snippet's end; only these are training data."""
    transitions: int
    """Steps of the complete rollouts."""
    success: float
    """Share of complete rollouts."""


def clip_row(clip: str, split: str, num_snippets: int, lengths: Sequence[int], failed: Sequence[bool]) -> ClipRow:
    """Return the row of a clip, given the length of each rollout and whether it ended early."""
    complete = [length for length, early in zip(lengths, failed, strict=True) if not early]
    share = len(complete) / len(lengths) if len(lengths) else 0.0
    return ClipRow(clip, split, num_snippets, len(lengths), len(complete), int(sum(complete)), share)


def row_of_file(path: Path, split: str) -> ClipRow:
    """Return the row of a file in MoCapAct's layout."""
    lengths: list[int] = []
    failed: list[bool] = []
    with import_extra("h5py", "imitation").File(path, "r") as file:
        snippets = [name for name in file if SNIPPET.fullmatch(name)]
        for name in snippets:
            metrics = [file[f"{name}/{part}_metrics/episode_lengths"][()] for part in ("start", "rsi")]
            lengths += np.concatenate(metrics).tolist()
            failed += file[f"{name}/early_termination"][()].astype(bool).tolist()
    return clip_row(path.stem, split, len(snippets), lengths, failed)


def total(rows: Iterable[ClipRow], split: str) -> ClipRow:
    """Return the sums over the clips of a split."""
    chosen = [row for row in rows if row.split == split]
    counts = {name: sum(getattr(row, name) for row in chosen) for name in COUNTS}
    share = counts["complete"] / counts["rollouts"] if counts["rollouts"] else 0.0
    return ClipRow(f"{len(chosen)} clips", split, **counts, success=share)


def describe(rows: Sequence[ClipRow]) -> str:
    """Return one line per split."""
    lines = []
    for split in dict.fromkeys(row.split for row in rows):
        found = total(rows, split)
        lines.append(
            f"{split}: {found.clip}, {found.snippets:,} snippets, {found.rollouts:,} rollouts, {found.success:.1%} "
            f"complete with {found.transitions:,} transitions"
        )
    return "\n".join(lines)


def as_csv(rows: Sequence[ClipRow]) -> str:
    """Return the table, one line per clip."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(ClipRow)], lineterminator="\n")
    writer.writeheader()
    writer.writerows({**asdict(row), "success": round(row.success, 4)} for row in rows)
    return text.getvalue()
