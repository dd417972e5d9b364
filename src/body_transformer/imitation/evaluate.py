"""A policy is tried out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ..model.policy import Policy
from ..training.cuda_graphs import CudaGraphed
from ..training.evaluation import Summary
from ..training.summary import summarize
from .task import Act, Task


def acting(policy: Policy) -> Act:
    """The policy's mean action, on NumPy arrays."""
    device = policy.normalizer.shift.device
    forward = CudaGraphed(policy) if device.type == "cuda" else policy

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
