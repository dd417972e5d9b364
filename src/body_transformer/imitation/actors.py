"""Policies as functions of NumPy arrays: those of this package, and DAPG's experts for the Adroit tasks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..array_files import ArrayArchive
from ..errors import listing
from ..policy_folder import KINDS
from .episodes import Floats
from .readers.files import naming
from .tasks.base import Act

if TYPE_CHECKING:
    from ..model.policy import Policy


@dataclass(frozen=True)
class Actor:
    """A policy loaded from disk."""

    obs_dim: int
    action_dim: int
    mean: Act
    """Mean action, before clipping."""
    std: npt.NDArray[np.float64] | None
    """[A] standard deviation of the policy's own noise; None if it is deterministic."""


def load_actor(path: Path) -> Actor:
    """Load a DAPG expert (.npz) or any policy that `find_policy` finds; a policy runs on the GPU if there is one."""
    if path.suffix == ".npz":
        return load_dapg(path)
    if path.is_file():
        raise ValueError(f"{str(path)!r} is not a policy: give an .npz file of a DAPG expert, or {KINDS}")
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
        if not np.isfinite(obs).all():
            names = policy.layout.obs_names()
            wrong = listing(names[entry] for entry in np.flatnonzero(~np.isfinite(obs).all(0)).tolist())
            raise ValueError(f"observations are not finite (NaN or infinite): {wrong}")
        batch = torch.from_numpy(obs)
        if device.type == "cuda":  # pad to powers of two, so that few batch sizes are recorded as CUDA graphs
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
"""Array of a DAPG policy -> names of its axes; axes with the same name have the same length."""


def load_dapg(path: str | os.PathLike[str]) -> Actor:
    """Read a DAPG expert from an .npz file that has exactly the arrays of `SHAPES`."""
    with naming(f"{os.fspath(path)}: not a DAPG policy"), ArrayArchive(path) as archive:
        return dapg_actor({name: np.asarray(archive[name]) for name in archive})


def dapg_actor(arrays: Mapping[str, Floats]) -> Actor:
    """Return an expert of DAPG (Rajeswaran et al. 2018).

    It has two tanh layers between fixed shifts and scales, and a Gaussian head. Its mean action is not clipped, because
    noise is added before clipping.
    """
    _check_arrays(arrays)
    obs_dim, action_dim = arrays["W0"].shape[1], arrays["W2"].shape[0]

    def mean(obs: Floats) -> Floats:
        x: Floats = (obs - arrays["in_shift"]) / (arrays["in_scale"] + 1e-8)
        for layer in "01":
            x = np.tanh(x @ arrays[f"W{layer}"].T + arrays[f"b{layer}"])
        actions: Floats = (x @ arrays["W2"].T + arrays["b2"]) * arrays["out_scale"] + arrays["out_shift"]
        return actions

    return Actor(obs_dim, action_dim, mean, np.exp(arrays["log_std"].astype(np.float64)))


def _check_arrays(arrays: Mapping[str, Floats]) -> None:
    if missing := SHAPES.keys() - arrays.keys():
        raise ValueError(f"a DAPG policy needs {listing(SHAPES)}; missing: {listing(sorted(missing))}")
    if foreign := arrays.keys() - SHAPES.keys():
        raise ValueError(f"a DAPG policy has only {listing(SHAPES)}; unknown: {listing(sorted(foreign))}")
    lengths: dict[str, int] = {}
    for name, axes in SHAPES.items():
        array = arrays[name]
        wanted = [lengths.get(axis, axis) for axis in axes]
        if array.ndim != len(axes) or any(
            lengths.setdefault(axis, length) != length for axis, length in zip(axes, array.shape, strict=True)
        ):
            raise ValueError(f"{name} of a DAPG policy must be {wanted}; got {list(array.shape)}")
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise ValueError(f"{name} of a DAPG policy must be finite float32 numbers")
