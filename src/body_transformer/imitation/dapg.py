"""The expert policies of DAPG (Rajeswaran et al. 2018) as plain arrays: those who made the Adroit demonstrations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import listing
from .sources.files import DAMAGE, open_npz

Floats = npt.NDArray[np.float32]
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
"""Array -> its axes; those of one name have one length."""


@dataclass(frozen=True)
class DapgPolicy:
    """Two tanh layers between fixed shifts and scales, and a Gaussian around what comes out."""

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
        """Reads an npz file with exactly the arrays of `SHAPES`."""
        if not Path(path).is_file():
            raise FileNotFoundError(f"no DAPG policy at {str(path)!r}")
        try:
            with open_npz(path) as archive:
                return cls({name: np.asarray(archive[name]) for name in archive})
        except DAMAGE as error:
            raise ValueError(f"{str(path)!r} is not a DAPG policy: {error}") from None

    @property
    def obs_dim(self) -> int:
        return int(self.arrays["W0"].shape[1])

    @property
    def action_dim(self) -> int:
        return int(self.arrays["W2"].shape[0])

    @property
    def std(self) -> npt.NDArray[np.float64]:
        """[A] of its own noise."""
        return np.exp(self.arrays["log_std"].astype(np.float64))

    def mean(self, obs: Floats) -> Floats:
        """[B, O] -> [B, A], not clipped yet: noise comes before the clipping."""
        if obs.ndim != 2 or obs.shape[1] != self.obs_dim:
            raise ValueError(f"obs must be [B, {self.obs_dim}]; got {list(obs.shape)}")
        of = self.arrays
        x: Floats = (obs - of["in_shift"]) / (of["in_scale"] + 1e-8)
        x = np.tanh(x @ of["W0"].T + of["b0"])
        x = np.tanh(x @ of["W1"].T + of["b1"])
        mean: Floats = (x @ of["W2"].T + of["b2"]) * of["out_scale"] + of["out_shift"]
        return mean

    def __call__(self, obs: Floats) -> Floats:
        """[B, O] -> [B, A], the mean action."""
        return np.clip(self.mean(obs), -1.0, 1.0)
