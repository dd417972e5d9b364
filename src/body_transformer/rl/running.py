"""Mean and variance of the observations of a running environment, on its device."""

import torch
from torch import Tensor, nn

from ..model.normalizer import Normalizer
from ..training.ranks import moments

EPSILON = 1e-5
"""Added to the variance, as the paper's PPO does: an entry that hardly moves is not blown up."""


class RunningNormalization(nn.Module):
    """Learns the statistics and keeps a `Normalizer` up to date. Nothing is read back from the device.

    `model.normalizer.RunningStatistics` is the same sum on the host, for data that is there already.
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
        """Adds a batch [B, O] of each process (Chan et al. 1983), and sets the normalizer to what is known now."""
        mean, var, batch = moments(obs.double())
        total = self.count + batch
        step = mean - self.mean
        self.sum_sq += var * batch + step.square() * (self.count * batch / total)
        self.mean += step * (batch / total)
        self.count.copy_(total)
        normalizer.shift.copy_(self.mean)
        normalizer.scale.copy_((self.sum_sq / total + EPSILON).sqrt())
