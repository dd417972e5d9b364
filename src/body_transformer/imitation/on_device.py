"""Demonstrations in the memory of the training's device, and batches that are drawn there.

The host only permutes the steps once per epoch. No batch waits for the device or copies data to it, so an update on a
GPU is as fast as its kernels.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
import torch
from torch import Tensor

from ..body.layout import Layout
from ..errors import listing
from ..model.normalizer import RunningStatistics
from .batches import check_batch_size, num_batches, part_of_batch, random_of_epoch
from .episodes import EpisodeInfo, Episodes, Steps

CHUNK_STEPS = 2**16
"""Steps whose statistics are computed at a time."""


class OnDevice(Episodes):
    """Episodes as two tensors, in any precision: the steps of all episodes, one after the other."""

    def __init__(self, layout: Layout, infos: Sequence[EpisodeInfo], obs: Tensor, actions: Tensor) -> None:
        """Take `obs` [S, used entries] and `actions` [S, A], on one device."""
        super().__init__(layout, infos)
        num_steps = sum(info.num_steps for info in infos)
        shapes = [list(obs.shape), list(actions.shape)]
        wanted = [[num_steps, len(self.obs_ids)], [num_steps, layout.action_dim]]
        if shapes != wanted:
            raise ValueError(f"observations and actions must have the shapes {wanted}; got {shapes}")
        self.obs, self.actions = obs, actions
        self._ends = np.cumsum([info.num_steps for info in infos])

    def _rows(self, index: int) -> slice:
        return slice(int(self._ends[index]) - self.infos[index].num_steps, int(self._ends[index]))

    def read(self, index: int) -> Steps:
        obs, actions = (values[self._rows(index)].float().cpu().numpy() for values in (self.obs, self.actions))
        return Steps(obs, actions)

    def subset(self, indices: Sequence[int]) -> OnDevice:
        if len(indices) == len(self):
            return self
        rows = torch.cat([torch.arange(self._rows(index).start, self._rows(index).stop) for index in indices])
        chosen = [values.index_select(0, rows.to(values.device)) for values in (self.obs, self.actions)]
        return OnDevice(self.layout, [self.infos[index] for index in indices], *chosen)

    def statistics(self) -> RunningStatistics:
        """Return mean and variance of the used observation entries; raise if a value is not finite."""
        names = self.layout.obs_names()
        self._check_finite("observations", self.obs, [names[entry] for entry in self.obs_ids.tolist()])
        self._check_finite("actions", self.actions, self.layout.action_names())
        statistics = RunningStatistics(len(self.obs_ids))
        for chunk in torch.split(self.obs, CHUNK_STEPS):
            exact = chunk.double()
            statistics.add(len(chunk), exact.mean(0).cpu(), exact.var(0, correction=0).cpu())
        return statistics

    def _check_finite(self, kind: str, values: Tensor, names: Sequence[str]) -> None:
        finite = torch.stack([chunk.isfinite().all(0) for chunk in torch.split(values, CHUNK_STEPS)]).all(0)
        if not finite.all():
            where = listing(names[entry] for entry in (~finite).nonzero().flatten().tolist())
            raise ValueError(f"the rollouts have {kind} that are not finite: {where}")


class DeviceBatches:
    """Batches of `batch_size` steps of episodes on a device, in the order of `Batches` for data that fit in memory."""

    def __init__(self, episodes: OnDevice, batch_size: int, seed: int, rank: int = 0, num_ranks: int = 1) -> None:
        check_batch_size(batch_size, num_ranks)
        if not episodes.num_steps:
            raise ValueError("the demonstrations have no steps")
        self.episodes, self.batch_size, self.seed = episodes, batch_size, seed
        self.rank, self.num_ranks = rank, num_ranks

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return num_batches(self.episodes.num_steps, self.batch_size)

    def epoch(self, epoch: int, first: int = 0) -> Generator[tuple[Tensor, Tensor], None, None]:
        """Yield the batches of an epoch from batch `first` on: obs [b, used entries] and actions [b, A], float32."""
        obs, actions, num_steps = self.episodes.obs, self.episodes.actions, self.episodes.num_steps
        order = torch.from_numpy(random_of_epoch(self.seed, epoch, 1).permutation(num_steps)).to(obs.device)
        for batch in range(first, len(self)):
            rows = order[slice(*part_of_batch(batch, self.batch_size, num_steps, self.rank, self.num_ranks))]
            yield obs.index_select(0, rows).float(), actions.index_select(0, rows).float()
