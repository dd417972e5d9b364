"""Rollouts of a model-based controller in MoCapAct's file layout, for motion clips without a trained expert.

    python -m body_transformer.imitation.tasks.mocap.generate CLIPS_HDF5 OUT_DIR --clips CMU_009_12 --start-rollouts 2

The controller is weaker than MoCapAct's experts. It falls in many clips; `early_termination` in the files marks these
rollouts.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zlib import crc32

import numpy as np
import tyro
from rich.progress import Progress

from ....files import atomic_write, reserve
from ....schema import check_fields
from .clips import clip_lengths, h5py
from .snippets import MAX_SNIPPET_STEPS, REF_STEPS, SNIPPET, available, cut, random_start, read_clip_list

if TYPE_CHECKING:
    from .environment import MocapEnv
    from .recording import Controller


@dataclass(frozen=True)
class RolloutSettings:
    """Number and kind of rollouts per snippet."""

    start_rollouts: int = 10
    """Rollouts from each snippet's start; MoCapAct's small dataset has 10."""
    random_rollouts: int = 10
    """Rollouts from a random frame of each snippet; MoCapAct's small dataset has 10."""
    max_steps: int = MAX_SNIPPET_STEPS
    """Length of the longest snippet; longer clips are cut."""
    noise_std: float = 0.1
    """Standard deviation of the executed actions around the controller's."""
    seed: int = 0
    """Seed of start frames and noise; each clip has its own random stream, so other clips do not change it."""

    def __post_init__(self) -> None:
        check_fields(self, ("start_rollouts", "random_rollouts", "seed"), fractions=("noise_std",))
        if not self.start_rollouts + self.random_rollouts:
            raise ValueError("at least one rollout per snippet is needed; got 0 start_rollouts and 0 random_rollouts")
        cut("clip", self.max_steps, self.max_steps)  # raises if max_steps is too small


@dataclass(frozen=True)
class Pilot:
    """A name and a factory of a controller of the walker; it can be pickled for other processes."""

    title: str
    """Name of the controller in the files; rollouts of pilots with other titles are never mixed."""
    make: Callable[[MocapEnv], Controller]


def _balance(env: MocapEnv) -> Controller:
    from .controller import BalanceController

    return BalanceController(env)


BALANCE = Pilot("BalanceController of body_transformer, not an expert of MoCapAct's", _balance)
"""The model-based controller."""


def record_clip(clips_file: str, clip: str, out: Path, settings: RolloutSettings, pilot: Pilot = BALANCE) -> str:
    """Roll the pilot out on a clip's snippets and write `out` atomically; return the clip."""
    os.environ.setdefault("MUJOCO_GL", "disabled")  # nothing is drawn here
    from .environment import MocapEnv
    from .recording import VALUES_NOTE, FileStatistics, record, write_snippet

    env = MocapEnv(clips_file)
    controller = pilot.make(env)
    rng = np.random.default_rng([settings.seed, crc32(clip.encode())])
    statistics = FileStatistics(env.obs_dim, env.action_dim)
    num_start = settings.start_rollouts

    def write(path: Path) -> None:
        with h5py.File(path, "w") as file:
            for snippet in cut(clip, env.lengths[clip], settings.max_steps):
                starts = [snippet.start] * num_start
                starts += [random_start(snippet, rng) for _ in range(settings.random_rollouts)]
                rollouts = [record(env, controller, snippet, start, settings.noise_std, rng) for start in starts]
                reserve(path.parent, sum(rollout.num_bytes for rollout in rollouts))
                write_snippet(file.create_group(snippet.name), rollouts, num_start)
                file.flush()
                for rollout in rollouts:
                    statistics.add(rollout)
            reserve(path.parent, 0)  # for everything else, which is small
            statistics.write(file.create_group("stats"))
            ends = np.cumsum(list(env.obs_sizes.values()))
            for (name, size), end in zip(env.obs_sizes.items(), ends, strict=True):
                file[f"observable_indices/walker/{name}"] = np.arange(end - size, end, dtype=np.int64)
            file["ref_steps"] = np.array(REF_STEPS, dtype=np.int64)
            file["n_start_rollouts"] = np.int64(num_start)
            file["n_rsi_rollouts"] = np.int64(settings.random_rollouts)
            file.attrs["settings"] = _as_text(settings)
            file.attrs["controller"] = pilot.title
            file.attrs["note"] = VALUES_NOTE

    atomic_write(out, write)
    return clip


def generate(
    clips_file: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    clips: Sequence[str] | None = None,
    settings: RolloutSettings | None = None,
    num_workers: int = 1,
    pilot: Pilot = BALANCE,
) -> Iterator[str]:
    """Write `OUT_DIR/CLIP.hdf5` per clip (all of the file by default) and yield its name.

    Existing files with the same settings and pilot are kept, so a run that was stopped continues.
    """
    settings = settings or RolloutSettings()
    lengths = clip_lengths(clips_file)
    requested = list(lengths) if clips is None else list(dict.fromkeys(clips))
    names = available(requested, lengths, repr(os.fspath(clips_file)))
    if num_workers < 1:
        raise ValueError(f"at least one worker is needed; got {num_workers}")
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in names if not _exists(folder / f"{name}.hdf5", settings, pilot)]
    jobs = [(os.fspath(clips_file), name, folder / f"{name}.hdf5", settings, pilot) for name in missing]
    if num_workers == 1:
        yield from (record_clip(*job) for job in jobs)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_workers, mp_context=context) as pool:
        yield from (future.result() for future in as_completed([pool.submit(record_clip, *job) for job in jobs]))


def _as_text(settings: RolloutSettings) -> str:
    return json.dumps(asdict(settings), sort_keys=True)


def _exists(path: Path, settings: RolloutSettings, pilot: Pilot) -> bool:
    """Return whether this file exists; raise if it has other settings, another pilot or is from another program."""
    if not path.exists():
        return False
    try:
        with h5py.File(path, "r") as file:
            found, by = (str(file.attrs.get(name, "unknown")) for name in ("settings", "controller"))
    except OSError as error:
        raise ValueError(f"{str(path)!r} exists but cannot be read: {error}") from None
    if found != _as_text(settings):
        raise ValueError(f"{str(path)!r} exists and was made with other settings ({found}); give another folder")
    if by != pilot.title:
        raise ValueError(f"{str(path)!r} exists and was made by another controller ({by}); give another folder")
    return True


@dataclass
class Generate:
    """Roll a model-based controller out on motion clips and write files in MoCapAct's layout."""

    clips_hdf5: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="CLIPS_HDF5")]
    """Motion clips, as `python -m body_transformer.imitation.tasks.mocap.clips` writes them."""
    out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="OUT_DIR")]
    """Folder for one file per clip."""
    settings: tyro.conf.OmitArgPrefixes[RolloutSettings]
    clips: Annotated[tuple[str, ...], tyro.conf.arg(metavar="CLIP …")] = ()
    """Only these clips."""
    clip_list: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Only the clips that this text file names, one per line; names that are not in the clips file are skipped."""
    workers: int = 1
    """Number of processes."""


def main(args: list[str]) -> None:
    options = tyro.cli(Generate, prog="python -m body_transformer.imitation.tasks.mocap.generate", args=args)
    lengths = clip_lengths(options.clips_hdf5)
    names = list(options.clips)
    if options.clip_list is not None:
        listed = read_clip_list(options.clip_list)
        names += available(listed, lengths, repr(str(options.clips_hdf5)), allow_missing=True)
    names = names or list(lengths)
    written = []
    with Progress(transient=True) as progress:
        bar = progress.add_task("clips", total=len(names))
        for clip in generate(options.clips_hdf5, options.out, names, options.settings, options.workers):
            written.append(clip)
            progress.advance(bar)
    print(f"wrote {len(written)} files to {options.out}; {len(set(names)) - len(written)} existed already")
    for title, metrics in (("from the start", "start_metrics"), ("from random frames", "rsi_metrics")):
        by_snippet = [one for clip in written for one in _lengths(options.out / f"{clip}.hdf5", metrics)]
        values = [value for snippet in by_snippet for value in snippet]
        if values:
            complete = 100 * np.mean([value >= 1 for value in values])
            any_complete = 100 * np.mean([max(snippet) >= 1 for snippet in by_snippet])
            print(
                f"{title}: {len(values)} rollouts, {complete:.0f} % reached the snippet's end ({any_complete:.0f} % of "
                f"{len(by_snippet)} snippets have such a rollout), mean normalised length {np.mean(values):.2f}"
            )


def _lengths(path: Path, metrics: str) -> list[list[float]]:
    """Return the normalised lengths of the rollouts of each snippet in a file."""
    with h5py.File(path, "r") as file:
        return [file[f"{name}/{metrics}/norm_episode_lengths"][()].tolist() for name in file if SNIPPET.fullmatch(name)]


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (ValueError, OSError) as error:
        sys.exit(f"generate: {error}")
