"""A policy is tried out, and what came out is written down."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ..aside import write_aside
from ..model.policy import Policy
from ..run import EVALUATION, Run
from ..training.replay import Replayed
from ..training.summary import Estimate, summarize
from .task import Act, Task

Summary = dict[str, dict[str, Estimate]]
"""Split -> metric -> its mean."""


def acting(policy: Policy) -> Act:
    """The policy's mean action, on NumPy arrays."""
    device = policy.normalizer.shift.device
    forward = Replayed(policy) if device.type == "cuda" else policy

    def act(obs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        batch = torch.from_numpy(obs)
        if device.type == "cuda":  # few sizes, each recorded once, whatever the number of rollouts that still go on
            batch = nn.functional.pad(batch, (0, 0, 0, _power_of_two(len(obs)) - len(obs)))
        with torch.no_grad():
            actions: npt.NDArray[np.float32] = forward(batch.to(device))[: len(obs)].float().cpu().numpy()
        return actions

    return act


def _power_of_two(size: int) -> int:
    """The least that is not smaller."""
    return 1 << (size - 1).bit_length()


def evaluate(
    policy: Policy,
    task: Task,
    num_episodes: int,
    seed: int,
    splits: Sequence[str] | None = None,
    on_done: Callable[[str, int], object] = lambda split, done: None,
) -> Summary:
    """So many rollouts for each split; all of the task's if none is named."""
    act = acting(policy)
    return {
        split: summarize(
            task.rollouts(act, num_episodes, seed, split, lambda done, split=split: on_done(split, done)),  # type: ignore[misc]
            task.metrics,
        )
        for split in (splits or task.splits)
    }


def write_evaluation(run: Run, found: Summary, num_episodes: int, seed: int) -> None:
    """evaluation.json, in the run's folder."""
    write_aside(run.folder / EVALUATION, json.dumps(to_json(found, num_episodes, seed), indent=1) + "\n")


def to_json(found: Summary, num_episodes: int, seed: int) -> dict[str, object]:
    splits = {split: {name: asdict(value) for name, value in metrics.items()} for split, metrics in found.items()}
    return {"splits": splits, "num_episodes": num_episodes, "seed": seed}
