"""Running mean and variance of observations and returns, kept on the device of the simulator."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..model.normalizer import Normalizer
from ..training.ranks import moments

EPSILON = 1e-5
"""Added to the variance, as in the paper's PPO, so that an almost constant entry does not grow large."""


class RunningNormalization(nn.Module):
    """Running statistics that keep a `Normalizer` up to date without reading anything back from the device.

    `model.normalizer.RunningStatistics` computes the same sums on the host, for recorded data.
    """

    count: Tensor
    mean: Tensor
    sum_sq: Tensor

    def __init__(self, obs_dim: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(obs_dim, dtype=torch.float64))
        self.register_buffer("sum_sq", torch.zeros(obs_dim, dtype=torch.float64))

    @torch.no_grad()
    def update(self, obs: Tensor, normalizer: Normalizer) -> None:
        """Add a batch [B, O] per process (Chan et al. 1983), and set the normalizer to the new statistics."""
        mean, var, batch = moments(obs.double())
        total = self.count + batch
        step = mean - self.mean
        self.sum_sq += var * batch + step.square() * (self.count * batch / total)
        self.mean += step * (batch / total)
        self.count.copy_(total)
        normalizer.shift.copy_(self.mean)
        normalizer.scale.copy_((self.sum_sq / total + EPSILON).sqrt())


class ValueScale(nn.Module):
    """Map returns [B, 1] to mean 0 and variance 1 over all returns so far, and values back."""

    def __init__(self) -> None:
        super().__init__()
        self.statistics, self.normalizer = RunningNormalization(1), Normalizer(1)

    def update(self, returns: Tensor) -> None:
        """Add returns […, 1] to the statistics."""
        self.statistics.update(returns.reshape(-1, 1), self.normalizer)

    def forward(self, values: Tensor) -> Tensor:
        """Scale values to mean 0 and variance 1."""
        scaled: Tensor = self.normalizer(values)
        return scaled

    def inverse(self, values: Tensor) -> Tensor:
        """Map scaled values to the scale of returns."""
        return values * self.normalizer.scale + self.normalizer.shift
