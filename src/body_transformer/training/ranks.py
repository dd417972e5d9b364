"""Ranks of the processes that `torchrun` starts to train one policy, and seeds that differ between them."""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
from torch import Tensor, distributed

PATIENCE = timedelta(hours=12)
"""Timeout of collective operations. It is long, since the other processes wait while one evaluates."""


@dataclass(frozen=True)
class Ranks:
    """The rank of this process."""

    rank: int = 0
    local: int = 0
    """Rank on this machine."""
    size: int = 1

    @classmethod
    def from_environment(cls) -> Ranks:
        """Read the ranks that `torchrun` sets; without it, there is one process."""
        return cls(*(int(os.environ.get(name, default)) for name, default in _VARIABLES.items()))

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and evaluates."""
        return self.rank == 0

    def device(self, device: str) -> str:
        """Return this process's device for a device type."""
        return f"cuda:{self.local}" if torch.device(device).type == "cuda" else device

    def share(self, number: int, what: str) -> int:
        """Return this process's share of a number; `what` names it in errors."""
        if number % self.size:
            raise ValueError(f"{what} must be divisible by the number of processes; got {number} and {self.size}")
        return number // self.size

    @contextmanager
    def joined(self, device: str) -> Iterator[None]:
        """Join the process group inside the context.

        Afterwards the group and its threads are gone, because a thread that releases a tensor during interpreter
        shutdown ends the process with SIGABRT.
        """
        if self.size == 1:
            yield
            return
        on_gpu = torch.device(device).type == "cuda"
        if on_gpu:
            torch.cuda.set_device(self.local)
        importlib.import_module("torch.distributed.nn")  # if imported later, its defaults would keep the group
        distributed.init_process_group("nccl" if on_gpu else "gloo", timeout=PATIENCE)
        try:
            yield
        finally:
            gc.collect()  # a DistributedDataParallel module keeps the group alive, too
            distributed.destroy_process_group()


_VARIABLES = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}


def moments(values: Tensor) -> tuple[Tensor, Tensor, int]:
    """Return mean, variance and number of the values [B, …] over B and all processes; B is equal in all of them."""
    mean, mean_sq = values.mean(0), values.square().mean(0)
    if not (distributed.is_available() and distributed.is_initialized()):
        return mean, values.var(0, correction=0), len(values)
    both = torch.stack([mean, mean_sq])
    distributed.all_reduce(both)
    both /= distributed.get_world_size()
    return both[0], (both[1] - both[0].square()).clamp(min=0), len(values) * distributed.get_world_size()


def derived_seed(*numbers: int) -> int:
    """Return a seed derived from all numbers, such as a run's seed and the number of a step or process."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
