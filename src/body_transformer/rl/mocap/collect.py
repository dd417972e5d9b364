"""Files in MoCapAct's layout, made by an expert in dm_control's own physics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...errors import listing
from ...files import atomic_write
from ...imitation.tasks.mocap.clip_table import ClipRow, as_csv, row_of_file
from ...imitation.tasks.mocap.generate import RolloutSettings, generate
from ...imitation.tasks.mocap.snippets import available
from .motions import TRAIN
from .trained import Expert

TABLE = "clips.csv"
"""Table of the clips, in the folder of the files."""


def collect(
    expert: Expert,
    out: Path,
    settings: RolloutSettings,
    split: str = TRAIN,
    only: tuple[str, ...] = (),
    num_workers: int = 1,
    on_clip: Callable[[int, int], object] = lambda done, total: None,
) -> list[ClipRow]:
    """Write `OUT/CLIP.hdf5` for the clips of one split, and a table; existing files with the same settings are kept.

    `on_clip` is called with the number of finished clips and their total.
    """
    clips = expert.options.clip_file()
    names = [name for name, own in clips.splits.items() if own == split]
    if not names:
        raise ValueError(f"no clip of {clips.path} is in the split {split!r}: give its list of clips")
    foreign = [file.stem for file in sorted(out.glob("*.hdf5")) if file.stem not in names]
    if foreign:
        raise ValueError(
            f"{str(out)!r} holds clips that are not in the split {split!r}: {listing(foreign)}; give another folder, "
            "so that training and validation clips are never mixed"
        )
    if only:
        names = list(available(only, {name: clips.lengths[name] for name in names}, f"the split {split!r}"))
    files = [out / f"{name}.hdf5" for name in names]
    on_clip(0, len(files))
    made = generate(clips.path, out, names, settings, num_workers, expert.pilot())
    for done, _ in enumerate(made, len([file for file in files if file.exists()]) + 1):
        on_clip(done, len(files))
    rows = [row_of_file(file, split) for file in sorted(out.glob("*.hdf5"))]
    atomic_write(out / TABLE, as_csv(rows))
    return rows
