"""Rollouts of a model-based controller in files of MoCapAct's layout, for those who have motion clips and no experts.

    python -m body_transformer.imitation.mocap.generate CLIPS_HDF5 OUT_DIR --clips CMU_009_12 --start-rollouts 2

The controller is no match for MoCapAct's experts: it falls in many clips, and the files say so (`early_termination`).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated
from zlib import crc32

import numpy as np
import tyro

from ..clip_lists import read_clip_list
from .clips import clip_lengths, written_aside
from .snippets import MAX_SNIPPET_STEPS, REF_STEPS, among, cut


@dataclass(frozen=True)
class Settings:
    """How many rollouts of what."""

    start_rollouts: int = 10
    """Rollouts from each snippet's start; MoCapAct's small data set has 10."""
    random_rollouts: int = 10
    """Rollouts from a random frame of each snippet; MoCapAct's small data set has 10."""
    max_steps: int = MAX_SNIPPET_STEPS
    """The longest snippet; longer clips are cut."""
    noise_std: float = 0.1
    """Of the executed actions around the controller's."""
    seed: int = 0
    """Fixes starts and noise; each clip has numbers of its own, whatever else is recorded."""

    def __post_init__(self) -> None:
        if min(self.start_rollouts, self.random_rollouts) < 0 or self.start_rollouts + self.random_rollouts < 1:
            raise ValueError(
                f"at least one rollout is needed; got {self.start_rollouts} from the start and {self.random_rollouts} "
                "from random frames"
            )
        if not 0 <= self.noise_std < 1:
            raise ValueError(f"the noise must be in [0, 1); got {self.noise_std}")
        cut("clip", self.max_steps, self.max_steps)  # says what is too short


@dataclass(frozen=True)
class Summary:
    """How one clip's rollouts went."""

    clip: str
    start_lengths: tuple[tuple[float, ...], ...]
    """For each snippet, the normalised lengths from its start."""
    random_lengths: tuple[tuple[float, ...], ...]
    """And those from random frames."""


def record_clip(clips_file: str, clip: str, out: str, settings: Settings) -> Summary:
    """Rolls the controller out on a clip's snippets and writes `out`, whole or not at all."""
    os.environ.setdefault("MUJOCO_GL", "disabled")  # nobody draws here
    from .controller import BalanceController
    from .environment import TrackingEnvironment
    from .recording import VALUES_NOTE, Statistics, random_start, record, write_indices, write_snippet

    env = TrackingEnvironment(clips_file)
    controller = BalanceController(env)
    rng = np.random.default_rng([settings.seed, crc32(clip.encode())])
    statistics = Statistics()
    from_start, from_random = [], []
    with written_aside(out) as file:
        for snippet in cut(clip, env.lengths[clip], settings.max_steps):
            starts = [snippet.start] * settings.start_rollouts
            starts += [random_start(snippet, rng) for _ in range(settings.random_rollouts)]
            recordings = [record(env, controller, snippet, start, settings.noise_std, rng) for start in starts]
            write_snippet(file.create_group(snippet.name), recordings, settings.start_rollouts)
            statistics.add(recordings)
            lengths = [len(recording.rewards) / recording.max_steps for recording in recordings]
            from_start.append(tuple(lengths[: settings.start_rollouts]))
            from_random.append(tuple(lengths[settings.start_rollouts :]))
        statistics.write(file.create_group("stats"))
        write_indices(file.create_group("observable_indices"), env.obs_sizes)
        file["ref_steps"] = np.array(REF_STEPS, dtype=np.int64)
        file["n_start_rollouts"] = np.int64(settings.start_rollouts)
        file["n_rsi_rollouts"] = np.int64(settings.random_rollouts)
        file.attrs["settings"] = _as_text(settings)
        file.attrs["controller"] = f"{controller.__class__.__name__} of body_transformer, not an expert of MoCapAct's"
        file.attrs["note"] = VALUES_NOTE
    return Summary(clip, tuple(from_start), tuple(from_random))


def generate(
    clips_file: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    clips: Sequence[str] | None = None,
    settings: Settings | None = None,
    num_workers: int = 1,
) -> Iterator[Summary]:
    """Writes `OUT_DIR/CLIP.hdf5` for each clip (all of the file, or those named) and says how each went.

    Files that are there already, made with the same settings, are kept: who was stopped goes on.
    """
    settings = settings or Settings()
    lengths = clip_lengths(clips_file)
    names = among(list(lengths) if clips is None else list(dict.fromkeys(clips)), lengths, repr(os.fspath(clips_file)))
    if num_workers < 1:
        raise ValueError(f"at least one worker is needed; got {num_workers}")
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in names if not _there(folder / f"{name}.hdf5", settings)]
    jobs = [(os.fspath(clips_file), name, str(folder / f"{name}.hdf5"), settings) for name in missing]
    if num_workers == 1:
        yield from (record_clip(*job) for job in jobs)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_workers, mp_context=context) as pool:
        yield from (future.result() for future in as_completed([pool.submit(record_clip, *job) for job in jobs]))


def _as_text(settings: Settings) -> str:
    return json.dumps(asdict(settings), sort_keys=True)


def _there(path: Path, settings: Settings) -> bool:
    """Whether this file has been made already; one of other settings, or of somebody else, is not touched."""
    import h5py

    if not path.exists():
        return False
    try:
        with h5py.File(path, "r") as file:
            made = str(file.attrs.get("settings", "unknown"))
    except OSError as error:
        raise ValueError(f"{str(path)!r} is there and cannot be read: {error}") from None
    if made != _as_text(settings):
        raise ValueError(f"{str(path)!r} is there, made with other settings ({made}); give another folder")
    return True


@dataclass
class Generate:
    """Rollouts of a model-based controller in files of MoCapAct's layout."""

    clips_hdf5: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="CLIPS_HDF5")]
    """Motion clips, as `python -m body_transformer.imitation.mocap.clips` writes them."""
    out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="OUT_DIR")]
    """The folder for one file a clip."""
    settings: tyro.conf.OmitArgPrefixes[Settings]
    clips: Annotated[tuple[str, ...], tyro.conf.arg(metavar="CLIP …")] = ()
    """Only these clips."""
    clip_list: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Only the clips that this text file names, one a line, as far as they are there."""
    workers: int = 1
    """Processes at a time."""


def main(args: list[str]) -> None:
    from rich.progress import Progress

    options = tyro.cli(Generate, prog="python -m body_transformer.imitation.mocap.generate", args=args)
    lengths = clip_lengths(options.clips_hdf5)
    names = list(options.clips)
    if options.clip_list is not None:
        names += among(read_clip_list(options.clip_list), lengths, repr(str(options.clips_hdf5)), allow_missing=True)
    names = names or list(lengths)
    summaries = []
    with Progress(transient=True) as progress:
        bar = progress.add_task("clips", total=len(names))
        for summary in generate(options.clips_hdf5, options.out, names, options.settings, options.workers):
            summaries.append(summary)
            progress.advance(bar)
    print(f"{len(summaries)} files written to {options.out}; {len(set(names)) - len(summaries)} were there already")
    for title, rollouts in (
        ("from the start", [one for summary in summaries for one in summary.start_lengths]),
        ("from random frames", [one for summary in summaries for one in summary.random_lengths]),
    ):
        values = [value for snippet in rollouts for value in snippet]
        if values:
            whole = 100 * np.mean([value >= 1 for value in values])
            some = 100 * np.mean([max(snippet) >= 1 for snippet in rollouts])
            print(
                f"{title}: {len(values)} rollouts, {whole:.0f} % reached the snippet's end, mean normalised length "
                f"{np.mean(values):.2f}; {some:.0f} % of {len(rollouts)} snippets have at least one that did"
            )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (ValueError, OSError) as error:
        sys.exit(f"generate: {error}")
