"""What is measured: the paper's two sweeps over random masks, and real bodies."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, Literal

import numpy as np

from .bodies import BODIES, body_mask
from .compiled import HEAD_DIMS
from .masks import Mask, count_ones, random_mask

DTYPES = ("float32", "float64")
SPARSITY = 0.908
"""That of the CMU humanoid's mask, which the paper takes for all lengths."""

Sweep = Literal["length", "sparsity", "body"]


@dataclass(frozen=True)
class Settings:
    """How much is measured; the defaults are the paper's."""

    lengths: tuple[int, ...] = (16, 32, 48, 64, 80, 96, 112, 128)
    """Sequence lengths at sparsity .908."""
    draws: int = 10_000
    """Random inputs and masks a length."""
    sizes: tuple[int, ...] = (16, 32, 64)
    """Numbers of nodes for the sweep over sparsities."""
    sparsities: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.96)
    """Shares of zeros, as far as the diagonal leaves room; the largest one, 1 - 1/N, comes on top."""
    masks: int = 50_000
    """Random masks a size, spread over its sparsities."""
    body_draws: int = 1_000
    """Random inputs a body."""
    head_dim: int = 64
    """d_k, which the paper does not give; 64 is the width of its imitation heads, 32 that of its RL ones."""
    dtype: str = "float32"
    """What policies run in; the longest length is measured in the other one too."""
    exp_flops: int = 1
    """c2 of the appendix, which does not give it: what one exponential counts for."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("draws", "masks", "body_draws", "exp_flops"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.head_dim not in HEAD_DIMS:
            raise ValueError(f"head_dim {self.head_dim}; have: {', '.join(map(str, HEAD_DIMS))}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype {self.dtype!r}; have: {', '.join(DTYPES)}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative; got {self.seed}")
        for point in self.points():
            if point.sparsity is not None:
                count_ones(point.num_nodes, point.sparsity)

    def points(self) -> list[Point]:
        """In the order in which they are measured."""
        other = next(dtype for dtype in DTYPES if dtype != self.dtype)
        lengths = [(length, self.dtype) for length in self.lengths] + [(length, other) for length in self.lengths[-1:]]
        return [
            *(Point("length", f"{length} nodes", length, SPARSITY, dtype, self.draws) for length, dtype in lengths),
            *(point for size in self.sizes for point in self._sparsity_points(size)),
            *(Point("body", name, 0, None, self.dtype, self.body_draws) for name in BODIES),
        ]

    def _sparsity_points(self, size: int) -> list[Point]:
        grid = [*(sparsity for sparsity in self.sparsities if sparsity < 1 - 1 / size), 1 - 1 / size]
        draws = ceil(self.masks / len(grid))
        return [Point("sparsity", f"{size} nodes", size, sparsity, self.dtype, draws) for sparsity in grid]

    def to_dict(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Settings:
        plain: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in data.items()}
        return cls(**plain)


@dataclass(frozen=True)
class Point:
    """One place of a sweep."""

    sweep: Sweep
    name: str
    num_nodes: int
    """0 where the body says it."""
    sparsity: float | None
    """None where the body says it."""
    dtype: str
    draws: int

    @property
    def key(self) -> str:
        return f"{self.sweep}/{self.name}/{self.sparsity}/{self.dtype}"

    def masks(self, rng: np.random.Generator) -> MaskSource:
        return MaskSource(self, rng)


class MaskSource:
    """The body's one mask time and again, or a new random mask each time."""

    def __init__(self, point: Point, rng: np.random.Generator) -> None:
        self.point, self.rng = point, rng
        self.body = body_mask(point.name) if point.sparsity is None else None

    def draw(self) -> Mask:
        if self.body is not None:
            return self.body
        assert self.point.sparsity is not None
        return random_mask(self.point.num_nodes, self.point.sparsity, self.rng)


QUICK = Settings(
    lengths=(16, 64, 128), draws=30, sizes=(16, 32, 64), sparsities=(0.0, 0.4, 0.7, 0.9), masks=60, body_draws=10
)
"""For CI: every part of it, in seconds."""
