"""Motion clips of a file in dm_control's HDF5 format, as tensors that every environment reads."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import import_extra, listing
from ...imitation.readers.files import naming
from ...imitation.readers.hdf5_items import check_whole_file
from ...imitation.tasks.mocap.clips import CMU_2020, DT_S
from ...imitation.tasks.mocap.snippets import REF_STEPS, Snippet, available, cut, read_splits
from ...size_limits import check_memory

TRAIN, VALIDATION = "train", "validation"
FEATURES: dict[str, tuple[str, tuple[int, ...]]] = {
    "root_pos": ("position", (3,)),
    "root_quat": ("quaternion", (4,)),
    "root_vel": ("velocity", (3,)),
    "root_spin": ("angular_velocity", (3,)),
    "joint_pos": ("joints", (56,)),
    "joint_vel": ("joints_velocity", (56,)),
    "body_pos": ("body_positions", (31, 3)),
    "body_quat": ("body_quaternions", (31, 4)),
    "center": ("center_of_mass", (3,)),
    "limbs": ("appendages", (5, 3)),
}
"""Field of `Motions` -> the feature of a clip, and its shape per frame."""


@dataclass(frozen=True)
class ClipFile:
    """The clips of a file and their split."""

    path: str
    lengths: Mapping[str, int]
    """Clip of a split -> number of frames."""
    splits: Mapping[str, str]
    """Clip -> its split."""

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        train: str | os.PathLike[str] | None = None,
        validation: str | os.PathLike[str] | None = None,
        only: Sequence[str] | None = None,
    ) -> ClipFile:
        """Check the file and the lists of clips.

        Args:
            path: the file.
            train: text file with the names of the training clips; listed clips that the file lacks are skipped.
            validation: the same for the validation clips. Without any list, all clips are for training.
            only: train on these clips alone.
        """
        path = os.fspath(path)
        lengths = {}
        with _opened(path) as clips:
            for name, group in clips:
                _check(f"{path}: clip {name!r}", group)
                lengths[name] = int(group.attrs["num_steps"])
        splits = read_splits(train, validation) or dict.fromkeys(lengths, TRAIN)
        splits = {name: splits[name] for name in available(list(splits), lengths, repr(path), allow_missing=True)}
        if only is not None:
            chosen = available(only, lengths, repr(path))
            unseen = [name for name in chosen if splits.get(name) != TRAIN]
            if unseen:
                raise ValueError(f"`only` may name training clips alone; these are not: {listing(unseen)}")
            splits = {name: split for name, split in splits.items() if split != TRAIN or name in chosen}
        if TRAIN not in splits.values():
            raise ValueError(f"{path}: none of its clips is a training clip")
        return cls(path, {name: lengths[name] for name in splits}, splits)

    def snippets(self, split: str) -> list[Snippet]:
        """Return the snippets of MoCapAct's kind into which the clips of a split are cut."""
        names = [name for name, own in self.splits.items() if own == split]
        return [snippet for name in names for snippet in cut(name, self.lengths[name])]

    def evaluation_snippets(self, count: int) -> list[Snippet]:
        """Return at most `count` snippets of each split, evenly spread over its clips."""
        chosen = []
        for snippets in map(self.snippets, (TRAIN, VALIDATION)):
            taken = min(count, len(snippets))
            chosen += [snippets[k * len(snippets) // taken] for k in range(taken)]
        return chosen


@contextmanager
def _opened(path: str) -> Iterator[list[tuple[str, Any]]]:
    """Open a file and yield the name and the HDF5 group of each clip, sorted by name."""
    h5py = import_extra("h5py", "imitation")
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path}: no such clip file")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"{path}: not an HDF5 file of motion clips: {error}") from None
    with file, naming(path):
        check_whole_file(file)
        yield sorted(file.items())


def _check(what: str, group: Any) -> None:
    """Refuse a clip of another format, of another walker or with another frame rate."""
    try:
        frames, dt = int(group.attrs["num_steps"]), float(group.attrs["dt"])
        walker = group["walkers/walker_0"]
        model = int(walker.attrs["model"])
        shapes = {name: walker[name].shape for name, _ in FEATURES.values()}
        texts = [name for name in shapes if walker[name].dtype.kind not in "fiu"]
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{what} is not in the format of dm_control's HDF5TrajectoryLoader: {error}; "
            "`python -m body_transformer.imitation.tasks.mocap.clips` makes such a file from joint angles"
        ) from None
    if model != CMU_2020:
        raise ValueError(f"{what} is for dm_control's walker number {model}; it must be number {CMU_2020}, CMU_2020")
    if not np.isclose(dt, DT_S):
        raise ValueError(f"{what} has frames every {dt} s; they must be {DT_S} s apart")
    if texts:
        raise ValueError(f"{what} has arrays that do not hold numbers: {listing(texts)}")
    expected = {name: (math.prod(shape), frames) for name, shape in FEATURES.values()}
    wrong = {name: shape for name, shape in shapes.items() if shape != expected[name]}
    if wrong:
        raise ValueError(f"{what} has arrays of wrong shapes, which must be [entries, {frames}]: {wrong}")


@dataclass(frozen=True)
class Motions:
    """All frames of all clips, one after the other: F frames of C clips.

    Joints are in the order of the walker's actuators, as in observations and actions.
    """

    names: tuple[str, ...]
    """Clips."""
    start: Tensor
    """[C]: first frame of each clip."""
    last: Tensor
    """[C]: the frame at which an episode is over, because the frames ahead end."""
    clip: Tensor
    """[F]: clip of each frame."""
    root_pos: Tensor
    """[F, 3], m, world."""
    root_quat: Tensor
    """[F, 4], w x y z, root to world."""
    root_vel: Tensor
    """[F, 3], m/s, world."""
    root_spin: Tensor
    """[F, 3], rad/s, in the root's frame."""
    joint_pos: Tensor
    """[F, 56], rad."""
    joint_vel: Tensor
    """[F, 56], rad/s."""
    body_pos: Tensor
    """[F, 31, 3], m, world: all bodies but the root."""
    body_quat: Tensor
    """[F, 31, 4], body to world."""
    center: Tensor
    """[F, 3], m: centre of mass."""
    limbs: Tensor
    """[F, 5, 3], m: hands, feet and head in the root's frame."""
    index: Mapping[str, int] = field(repr=False)
    """Clip -> its number."""

    @classmethod
    def read(
        cls, file: ClipFile, joint_order: Sequence[int], device: torch.device | str, dtype: torch.dtype
    ) -> Motions:
        """Read the clips of a file; `joint_order` is the place in the file of each joint."""
        num_entries = sum(math.prod(shape) for _, shape in FEATURES.values())
        num_bytes = 4 * num_entries * sum(file.lengths.values())
        check_memory(f"{file.path}: its clips", num_bytes, os.path.getsize(file.path))
        columns: dict[str, list[NDArray[np.float32]]] = {name: [] for name in FEATURES}
        with _opened(file.path) as clips:
            for group in (group for name, group in clips if name in file.lengths):
                for column, (feature, shape) in FEATURES.items():
                    columns[column].append(group[f"walkers/walker_0/{feature}"][()].T.reshape(-1, *shape))
        names = tuple(sorted(file.lengths))
        lengths = torch.tensor([file.lengths[name] for name in names], device=device)
        start = lengths.cumsum(0) - lengths
        frames = {name: torch.tensor(np.concatenate(arrays), device=device) for name, arrays in columns.items()}
        if not all(bool(values.isfinite().all()) for values in frames.values()):
            raise ValueError(f"{file.path} has values that are not finite")
        for name in ("joint_pos", "joint_vel"):
            frames[name] = frames[name][:, joint_order]
        return cls(
            names=names,
            start=start,
            last=start + lengths - REF_STEPS[-1] - 1,
            clip=torch.repeat_interleave(torch.arange(len(names), device=device), lengths),
            index={name: number for number, name in enumerate(names)},
            **{name: values.to(dtype).contiguous() for name, values in frames.items()},
        )

    @property
    def num_frames(self) -> int:
        return len(self.clip)

    def frames(self, snippet: Snippet) -> tuple[int, int]:
        """Return the first frame of a snippet, and the frame at which an episode on it is over.

        The frames ahead end with the snippet (including its frame `end`) or with the clip.
        """
        number = self.index[snippet.clip]
        start, last = int(self.start[number]), int(self.last[number])
        return start + snippet.start, min(start + snippet.end - REF_STEPS[-1], last)
