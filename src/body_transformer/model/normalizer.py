"""Normalisation of observations, a part of every policy."""

import torch
from torch import Tensor, nn


class Normalizer(nn.Module):
    """(obs - shift) / scale, then an optional bound. Shift is 0 and scale 1 until statistics are set."""

    shift: Tensor
    scale: Tensor

    def __init__(self, obs_dim: int, clip: float | None = None) -> None:
        super().__init__()
        self.clip = clip
        self.register_buffer("shift", torch.zeros(obs_dim))
        self.register_buffer("scale", torch.ones(obs_dim))

    def set_statistics(self, mean: Tensor, var: Tensor) -> None:
        """Set mean and variance of the observations, [O] each; constant entries are shifted but not scaled."""
        for name, value in (("mean", mean), ("var", var)):
            if value.shape != self.shift.shape:
                raise ValueError(f"{name} must have shape {list(self.shift.shape)}; got {list(value.shape)}")
            if not torch.isfinite(value).all():
                raise ValueError(f"{name} has entries that are not finite: {_where(~torch.isfinite(value))}")
        if (var < 0).any():
            raise ValueError(f"var has negative entries: {_where(var < 0)}")
        mean, var = mean.double(), var.double()
        constant = var <= 1e-12 * mean.square() + 1e-16  # such a variance can come from rounding alone
        self.shift.copy_(mean)
        self.scale.copy_(torch.where(constant, 1.0, var.sqrt()))

    def forward(self, obs: Tensor) -> Tensor:
        """[B, O] -> [B, O]"""
        obs = (obs.to(self.shift.dtype) - self.shift) / self.scale  # environments often return doubles
        return obs if self.clip is None else obs.clamp(-self.clip, self.clip)


class RunningStatistics:
    """Mean and variance of a stream of observations, in double precision (Chan et al. 1983)."""

    def __init__(self, obs_dim: int) -> None:
        self.count = 0
        self.mean = torch.zeros(obs_dim, dtype=torch.float64)
        self._sum_sq = torch.zeros(obs_dim, dtype=torch.float64)

    @property
    def var(self) -> Tensor:
        """Population variance [O]."""
        return self._sum_sq / max(self.count, 1)

    def update(self, obs: Tensor) -> None:
        """Add a batch [B, O]."""
        if obs.ndim != 2 or obs.shape[1] != len(self.mean):
            raise ValueError(f"obs must be [B, {len(self.mean)}]; got {list(obs.shape)}")
        if len(obs):
            obs = obs.detach().to(self.mean)
            self.add(len(obs), obs.mean(0), obs.var(0, correction=0))

    def add(self, count: int, mean: Tensor, var: Tensor) -> None:
        """Add `count` observations with this mean and variance, [O] each."""
        if count == 0:
            return
        step, total = mean - self.mean, self.count + count
        self._sum_sq += var * count + step.square() * (self.count * count / total)
        self.mean += step * (count / total)
        self.count = total


def _where(wrong: Tensor) -> list[int]:
    return wrong.nonzero().flatten().tolist()[:20]
