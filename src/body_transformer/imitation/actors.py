"""Policies as functions of NumPy observations: this package's, and the DAPG experts of the Adroit demonstrations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..errors import listing
from ..policy_folder import KINDS
from .episodes import Floats
from .readers.files import naming, open_npz
from .tasks.base import Act

if TYPE_CHECKING:
    from ..model.policy import Policy


@dataclass(frozen=True)
class Actor:
    """A policy that was read from disk, ready to act."""

    obs_dim: int
    action_dim: int
    mean: Act
    """Mean action, before clipping."""
    std: npt.NDArray[np.float64] | None
    """[A] standard deviation of the policy's own noise; None if it is deterministic."""


def load_actor(path: Path) -> Actor:
    """Load a DAPG expert (.npz), or a policy that `find_policy` finds; on the GPU if there is one."""
    if path.suffix == ".npz":
        expert = DapgPolicy.load(path)
        return Actor(expert.obs_dim, expert.action_dim, expert.mean, expert.std)
    if path.is_file():
        raise ValueError(f"no policy in {str(path)!r}: a file must be an .npz file; otherwise give {KINDS}")
    import torch

    from ..model.policy import Policy

    device = "cuda" if torch.cuda.is_available() else "cpu"
    policy = Policy.load(path).to(device).eval()
    std = None if policy.log_std is None else policy.log_std.detach().double().exp().cpu().numpy()
    return Actor(policy.layout.obs_dim, policy.layout.action_dim, acting(policy), std)


def acting(policy: Policy) -> Act:
    """Return the policy's mean action as a function of NumPy arrays."""
    import torch
    from torch import nn

    from ..training.cuda_graphs import CudaGraphed

    device = policy.normalizer.shift.device
    forward = CudaGraphed(policy) if device.type == "cuda" else policy

    def act(obs: Floats) -> Floats:
        batch = torch.from_numpy(obs)
        if device.type == "cuda":  # pad to powers of two: few sizes to record, however many rollouts are running
            batch = nn.functional.pad(batch, (0, 0, 0, (1 << (len(obs) - 1).bit_length()) - len(obs)))
        with torch.no_grad():
            actions: Floats = forward(batch.to(device))[: len(obs)].float().cpu().numpy()
        return actions

    return act


SHAPES = {
    "in_shift": ("obs",),
    "in_scale": ("obs",),
    "W0": ("hidden 0", "obs"),
    "b0": ("hidden 0",),
    "W1": ("hidden 1", "hidden 0"),
    "b1": ("hidden 1",),
    "W2": ("action", "hidden 1"),
    "b2": ("action",),
    "out_shift": ("action",),
    "out_scale": ("action",),
    "log_std": ("action",),
}
"""Array of a DAPG policy -> its axes; axes of one name have one length."""


@dataclass(frozen=True)
class DapgPolicy:
    """An expert of DAPG (Rajeswaran et al. 2018): two tanh layers between fixed shifts and scales, a Gaussian head."""

    arrays: Mapping[str, Floats]

    def __post_init__(self) -> None:
        if missing := SHAPES.keys() - self.arrays.keys():
            raise ValueError(f"a DAPG policy needs {listing(SHAPES)}; missing: {listing(sorted(missing))}")
        if foreign := self.arrays.keys() - SHAPES.keys():
            raise ValueError(f"a DAPG policy has {listing(SHAPES)}; not {listing(sorted(foreign))}")
        lengths: dict[str, int] = {}
        for name, axes in SHAPES.items():
            array = self.arrays[name]
            wanted = [lengths.get(axis, axis) for axis in axes]
            if array.ndim != len(axes) or any(
                lengths.setdefault(axis, length) != length for axis, length in zip(axes, array.shape, strict=True)
            ):
                raise ValueError(f"{name} of a DAPG policy must be {wanted}; got {list(array.shape)}")
            if array.dtype != np.float32 or not np.isfinite(array).all():
                raise ValueError(f"{name} of a DAPG policy must be finite float32 numbers")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DapgPolicy:
        """Read an .npz file that has exactly the arrays of `SHAPES`."""
        with naming(f"{os.fspath(path)}: not a DAPG policy"), open_npz(path) as archive:
            return cls({name: np.asarray(archive[name]) for name in archive})

    @property
    def obs_dim(self) -> int:
        return int(self.arrays["W0"].shape[1])

    @property
    def action_dim(self) -> int:
        return int(self.arrays["W2"].shape[0])

    @property
    def std(self) -> npt.NDArray[np.float64]:
        """[A] standard deviation of its noise."""
        return np.exp(self.arrays["log_std"].astype(np.float64))

    def mean(self, obs: Floats) -> Floats:
        """Return the mean action, [B, O] -> [B, A], not clipped: noise is added before clipping."""
        if obs.ndim != 2 or obs.shape[1] != self.obs_dim:
            raise ValueError(f"obs must be [B, {self.obs_dim}]; got {list(obs.shape)}")
        of = self.arrays
        x: Floats = (obs - of["in_shift"]) / (of["in_scale"] + 1e-8)
        x = np.tanh(x @ of["W0"].T + of["b0"])
        x = np.tanh(x @ of["W1"].T + of["b1"])
        mean: Floats = (x @ of["W2"].T + of["b2"]) * of["out_scale"] + of["out_shift"]
        return mean
