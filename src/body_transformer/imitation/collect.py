"""Collect demonstrations: roll a policy out and write its trajectories as a Minari dataset, atomically."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import yaml

from .. import __version__
from ..body.layout import Term
from ..errors import import_extra
from ..files import new_folder, reserve
from .readers.stored import SIDECAR
from .tasks.base import Act, CollectableTask, Trajectory

Labels = Literal["executed", "clean"]
METADATA = "metadata.json"
"""File that identifies a Minari dataset's folder."""


@dataclass
class CollectedDataset:
    """Counts of a dataset that is being collected."""

    path: str
    """Its folder; `minari.MinariDataset` reads it."""
    num_episodes: int = 0
    """Episodes in the dataset."""
    num_steps: int = 0
    """Steps in the dataset."""
    num_played: int = 0
    """Episodes that were played."""
    num_successes: int = 0
    """Played episodes with success at the last step."""
    num_successes_any: int = 0
    """Played episodes with success at any step."""
    total_reward: float = 0.0
    """Sum of the returns of the episodes in the dataset."""
    has_success: bool = True
    """Whether the task defines success."""

    def add(self, trajectory: Trajectory, keep: bool) -> None:
        """Count a played episode, which is in the dataset if `keep`."""
        self.num_played += 1
        self.num_successes += bool(trajectory.success[-1])
        self.num_successes_any += bool(trajectory.success.any())
        if keep:
            self.num_episodes += 1
            self.num_steps += trajectory.num_steps
            self.total_reward += float(trajectory.rewards.sum())

    @property
    def success_rate(self) -> float | None:
        """Fraction of the played episodes with success at the last step; None if the task defines no success."""
        return self.num_successes / self.num_played if self.has_success else None

    def summary(self) -> dict[str, float | None]:
        """Return the counts and rates, for the dataset's metadata and the command's output."""
        return {
            "num_episodes": self.num_episodes,
            "num_steps": self.num_steps,
            "num_played": self.num_played,
            "success_rate": self.success_rate,
            "success_any_rate": self.num_successes_any / self.num_played if self.has_success else None,
            "mean_return": self.total_reward / self.num_episodes,
        }


def collect(
    task: CollectableTask,
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
    terms: Sequence[Term] = (),
    on_episode: Callable[[CollectedDataset], object] = lambda found: None,
) -> CollectedDataset:
    """Play until there are `num_episodes` episodes and write them as a Minari dataset in the folder `out`.

    Args:
        act: the policy's mean action.
        noise: standard deviation of noise that is added to the actions.
        own_std: [A] standard deviation of the policy's own noise.
        labels: record the executed actions, or the mean actions before noise.
        terms: terms of the observation, whose names are stored with it.
        on_episode: called after each episode.
    """
    _check(num_episodes, seed, noise)
    if only_successes and not task.has_success:
        raise ValueError(
            f"{task.env_id} has no successes: set the task's option success to the key of info that holds them"
        )
    std = _std(task.action_dim, noise, own_std)
    found = CollectedDataset(str(out), has_success=task.has_success)
    folder = Path(out).resolve()  # a symbolic link stays, and its target is replaced
    _check_out(folder, overwrite)
    with new_folder(folder) as unfinished:
        storage = import_extra("minari.dataset.minari_storage", "imitation").MinariStorage.new(
            unfinished, **task.describe()
        )
        while missing := num_episodes - found.num_episodes:
            _check_rate(found, num_episodes)
            for trajectory in task.record(act, range(found.num_played, found.num_played + missing), seed, std):
                keep = bool(trajectory.success[-1]) or not only_successes
                if keep:
                    reserve(unfinished, trajectory.num_bytes)
                    actions = trajectory.executed if labels == "executed" else trajectory.clean
                    _write(storage, found, trajectory, actions)
                found.add(trajectory, keep)
                on_episode(found)
        settings = {"seed": seed, "noise": noise, "sampled": own_std is not None, "labels": labels}
        made = {"version": __version__, "policy": policy_name, "only_successes": only_successes, **settings}
        if terms:
            names = {"obs": {term.name: term.size for term in terms}}
            (unfinished / SIDECAR).write_text(yaml.safe_dump(names, sort_keys=False), encoding="utf-8")
        storage.update_metadata(_metadata(name, task, made | found.summary()))
    return found


def _check(num_episodes: int, seed: int, noise: float) -> None:
    if num_episodes < 1:
        raise ValueError(f"the number of episodes must be 1 or more; got {num_episodes}")
    if seed < 0:
        raise ValueError(f"the seed must be a whole number, 0 or more; got {seed}")
    if not (math.isfinite(noise) and noise >= 0):
        raise ValueError(f"the noise must be a standard deviation of 0 or more; got {noise}")


def _std(action_dim: int, noise: float, own: npt.NDArray[np.float64] | None) -> npt.NDArray[np.float64] | None:
    """Return the standard deviation [A] of both kinds of noise together; None if there is none."""
    std = np.full(action_dim, noise) if own is None else np.hypot(own, noise)
    return std if std.any() else None


def _check_rate(found: CollectedDataset, num_episodes: int) -> None:
    """Raise if so few episodes succeed that collecting would take too long."""
    if found.num_played >= 10 * num_episodes + 50:
        raise ValueError(
            f"the policy succeeded in {found.num_successes} of {found.num_played} episodes: too rarely to "
            f"collect {num_episodes} successful ones"
        )


def _write(storage: Any, found: CollectedDataset, trajectory: Trajectory, actions: npt.NDArray[np.float32]) -> None:
    """Write a trajectory with these actions as the next episode of a Minari dataset."""
    buffer = import_extra("minari.data_collector.episode_buffer", "imitation").EpisodeBuffer
    is_last = np.arange(trajectory.num_steps) == trajectory.num_steps - 1
    never = np.zeros(trajectory.num_steps, dtype=bool)
    episode = buffer(
        seed=trajectory.seed,
        observations=trajectory.obs,
        actions=actions,
        rewards=trajectory.rewards,
        terminations=is_last if trajectory.terminated else never,
        truncations=never if trajectory.terminated else is_last,
        # one per observation
        infos={"success": np.concatenate([[False], trajectory.success])} if found.has_success else {},
    )
    storage.update_episodes([episode])
    success = {"success": bool(trajectory.success[-1]), "success_any": bool(trajectory.success.any())}
    metadata = {
        "clip": trajectory.clip,
        **(success if found.has_success else {}),
        "total_reward": float(trajectory.rewards.sum()),
    }
    storage.update_episode_metadata([metadata], [found.num_episodes])


def _metadata(name: str, task: CollectableTask, made: dict[str, Any]) -> dict[str, Any]:
    return {
        "dataset_id": f"body-transformer/{name}-v0",
        "minari_version": version("minari"),
        "algorithm_name": made["policy"] or "a policy",
        "description": f"{made['num_episodes']} episodes of {task.env_id}, by bot collect",
        "requirements": [f"{package}=={version(package)}" for package in task.requirements],
        "body_transformer": made,
    }


def _check_out(out: Path, overwrite: bool) -> None:
    """Check that `out` does not exist, or is a dataset that may be overwritten."""
    if not out.exists():
        return
    if not out.is_dir():
        raise ValueError(f"cannot write a dataset to {str(out)!r}: it is a file, not a folder")
    if not overwrite:
        raise ValueError(f"{str(out)!r} already exists: add --overwrite to replace the dataset")
    if any(out.iterdir()) and not (out / METADATA).is_file():
        raise ValueError(f"{str(out)!r} is not a Minari dataset ({METADATA} is missing), so it is not overwritten")
