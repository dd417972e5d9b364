"""Collecting demonstrations: a policy plays, and what it does becomes a Minari data set.

The data set is written aside and renamed when it is whole; whoever stops before that finds nothing, not a part.
"""

from __future__ import annotations

import math
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from .. import __version__
from ..errors import install, unknown
from ..files import replace_folder
from .task import Act

Labels = Literal["executed", "clean"]
METADATA = "metadata.json"
"""The file by which Minari knows a data set's folder."""


@dataclass(frozen=True)
class Recording:
    """One episode, as it was played."""

    seed: int
    """What the environment was reset with."""
    obs: npt.NDArray[np.float64]
    """[T + 1, O], the one after the last step included."""
    executed: npt.NDArray[np.float32]
    """[T, A] the actions that were carried out, noise and all."""
    clean: npt.NDArray[np.float32]
    """[T, A] the policy's actions before noise was added."""
    rewards: npt.NDArray[np.float64]
    """[T]"""
    success: npt.NDArray[np.bool_]
    """[T] whether the task was done, after each step; if it is never done, whether it is still going well."""
    terminated: bool = False
    """Whether the task ended the episode; otherwise its time was up."""
    clip: str = ""
    """What was to be done: a motion, a variation of the task; empty if there is one only."""

    @property
    def num_steps(self) -> int:
        return len(self.rewards)


class Recorder(Protocol):
    """A simulator that plays episodes and keeps everything."""

    @property
    def env_id(self) -> str:
        """The environment's name."""

    @property
    def action_dim(self) -> int: ...

    @property
    def requirements(self) -> tuple[str, ...]:
        """The packages whose versions decide how an episode goes."""

    def record(
        self, act: Act, episodes: range, seed: int, std: npt.NDArray[np.float64] | None = None
    ) -> Iterator[Recording]:
        """Those episodes of the seed, in order; `std` [A] is of the Gaussian noise on the actions."""

    def describe(self) -> dict[str, Any]:
        """`observation_space`, `action_space` and `env_spec` (which may be None), all of them gymnasium's."""

    def close(self) -> None:
        """Ends what runs for it."""


@dataclass(frozen=True)
class Collected:
    """What was collected."""

    dataset: str
    """The folder; `minari.MinariDataset` reads it."""
    num_episodes: int
    """Episodes in the data set."""
    num_steps: int
    """Steps in the data set."""
    num_played: int
    """Episodes that were played for it."""
    success_rate: float
    """Of those played: done at the last step."""
    success_any_rate: float
    """Of those played: done at any step."""
    mean_return: float
    """Of those in the data set."""


@dataclass
class Tally:
    """How far collecting is."""

    num_kept: int = 0
    num_played: int = 0
    num_steps: int = 0
    num_successes: int = 0
    num_successes_any: int = 0
    total_reward: float = 0.0

    def add(self, recording: Recording, keep: bool) -> None:
        self.num_played += 1
        self.num_successes += bool(recording.success[-1])
        self.num_successes_any += bool(recording.success.any())
        if keep:
            self.num_kept += 1
            self.num_steps += recording.num_steps
            self.total_reward += float(recording.rewards.sum())


def collect(
    task: Recorder,
    act: Act,
    num_episodes: int,
    out: str | os.PathLike[str],
    seed: int = 0,
    noise: float = 0.0,
    *,
    own_std: npt.NDArray[np.float64] | None = None,
    labels: Labels = "executed",
    only_successes: bool = False,
    overwrite: bool = False,
    name: str = "collected",
    policy_name: str = "",
    on_episode: Callable[[Tally], object] = lambda tally: None,
) -> Collected:
    """Plays until there are `num_episodes`, and leaves them as a Minari data set in the folder `out`.

    `act` gives the mean action; `own_std` [A] is the policy's own noise, `noise` is added to that. `labels` says
    whether the action that was executed is recorded or the one before any noise. `on_episode` hears of each episode.
    """
    _check(num_episodes, seed, noise, labels)
    std = _std(task.action_dim, noise, own_std)
    settings = {"seed": seed, "noise": noise, "sampled": own_std is not None, "labels": labels}
    tally = Tally()
    with _Writer(task, Path(out), name, overwrite) as writer:
        for recording in _play(task, act, num_episodes, seed, std, tally):
            keep = bool(recording.success[-1]) or not only_successes
            tally.add(recording, keep)
            if keep:
                writer.add(recording, recording.executed if labels == "executed" else recording.clean)
            on_episode(tally)
        found = Collected(
            str(out),
            tally.num_kept,
            tally.num_steps,
            tally.num_played,
            tally.num_successes / tally.num_played,
            tally.num_successes_any / tally.num_played,
            tally.total_reward / tally.num_kept,
        )
        made = {"version": __version__, "policy": policy_name, "only_successes": only_successes, **settings}
        writer.finish(made | {key: value for key, value in asdict(found).items() if key != "dataset"})
    return found


def _check(num_episodes: int, seed: int, noise: float, labels: str) -> None:
    if num_episodes < 1:
        raise ValueError(f"the number of episodes must be 1 or more; got {num_episodes}")
    if seed < 0:
        raise ValueError(f"a seed is a whole number from 0 up; got {seed}")
    if not (math.isfinite(noise) and noise >= 0):
        raise ValueError(f"the noise is a standard deviation, 0 or more; got {noise}")
    if labels not in get_args(Labels):
        raise ValueError(unknown("kind of labels", labels, get_args(Labels)))


def _std(action_dim: int, noise: float, own: npt.NDArray[np.float64] | None) -> npt.NDArray[np.float64] | None:
    """[A] of both noises together; None if there is none."""
    std = np.full(action_dim, noise) if own is None else np.hypot(own, noise)
    if std.shape != (action_dim,):
        raise ValueError(f"the policy's own noise must be [{action_dim}]; got {list(std.shape)}")
    return std if std.any() else None


def _play(
    task: Recorder, act: Act, num_episodes: int, seed: int, std: npt.NDArray[np.float64] | None, tally: Tally
) -> Iterator[Recording]:
    """So many episodes, then others in place of those that were not kept."""
    limit = 10 * num_episodes + 50  # a policy that fails this often is not worth waiting for
    while missing := num_episodes - tally.num_kept:
        if tally.num_played >= limit:
            raise ValueError(
                f"the policy succeeded in {tally.num_successes} of {tally.num_played} episodes: too rarely to collect "
                f"{num_episodes} successful ones"
            )
        yield from task.record(act, range(tally.num_played, tally.num_played + missing), seed, std)


class _Writer:
    """A Minari data set in the making, beside where it will be; gone if it is left before it is finished."""

    def __init__(self, task: Recorder, out: Path, name: str, overwrite: bool) -> None:
        self.task, self.name, self.out = task, name, out.resolve()  # a link stays one; what it points to is written
        _check_out(self.out, overwrite)
        self.aside = self.out.parent / f".{self.out.name}.{uuid.uuid4().hex[:8]}"
        self.num_episodes = 0

    def __enter__(self) -> _Writer:
        try:
            storage = import_module("minari.dataset.minari_storage").MinariStorage
        except ImportError as error:
            raise ValueError(f"{error}; {install('imitation')}") from None
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.aside.mkdir()  # now, not after hours of simulation, is the time to learn that it cannot be written
        self.storage = storage.new(self.aside, **self.task.describe())
        return self

    def add(self, recording: Recording, actions: npt.NDArray[np.float32]) -> None:
        buffer = import_module("minari.data_collector.episode_buffer").EpisodeBuffer
        is_last = np.arange(recording.num_steps) == recording.num_steps - 1
        never = np.zeros(recording.num_steps, dtype=bool)
        episode = buffer(
            seed=recording.seed,
            observations=recording.obs,
            actions=actions,
            rewards=recording.rewards,
            terminations=is_last if recording.terminated else never,
            truncations=never if recording.terminated else is_last,
            infos={"success": np.concatenate([[False], recording.success])},  # as many as observations
        )
        self.storage.update_episodes([episode])
        of_the_episode = {
            "clip": recording.clip,
            "success": bool(recording.success[-1]),
            "success_any": bool(recording.success.any()),
            "total_reward": float(recording.rewards.sum()),
        }
        self.storage.update_episode_metadata([of_the_episode], [self.num_episodes])
        self.num_episodes += 1

    def finish(self, made: dict[str, Any]) -> None:
        """Completes the metadata, and puts the data set in its place."""
        self.storage.update_metadata(
            {
                "dataset_id": f"body-transformer/{self.name}-v0",
                "minari_version": version("minari"),
                "algorithm_name": made["policy"] or "a policy",
                "description": f"{self.num_episodes} episodes of {self.task.env_id}, by bot collect",
                "requirements": [f"{package}=={version(package)}" for package in self.task.requirements],
                "body_transformer": made,
            }
        )
        for file in (*self.aside.iterdir(), self.aside):
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        replace_folder(self.aside, self.out)

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self.aside, ignore_errors=True)


def _check_out(out: Path, overwrite: bool) -> None:
    """Nothing is overwritten unasked, and nothing but a data set even then."""
    if not out.exists():
        return
    if not out.is_dir():
        raise ValueError(f"cannot write a data set to {str(out)!r}: it is a file, a folder is needed")
    if not overwrite:
        raise ValueError(f"{str(out)!r} exists already; --overwrite replaces a data set")
    if any(out.iterdir()) and not (out / METADATA).is_file():
        raise ValueError(f"{str(out)!r} is not a Minari data set ({METADATA} is not there), so it is not overwritten")
