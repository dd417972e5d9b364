"""Points of the paper's two sweeps over random masks and of real bodies, and the measurement of one point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil
from time import perf_counter
from typing import Any, Literal

import numpy as np

from ..clocks import take_turns
from ..masks import BODIES, Mask, count_ones, random_mask
from .algorithms import Implementation, NumpyAttention, check_agreement
from .compiled import HEAD_DIMS
from .flops import ALGORITHMS, formula, left_out

DTYPES = ("float32", "float64")
SPARSITY = 0.908
"""Sparsity of the CMU humanoid's mask, which the paper uses for all lengths."""

Sweep = Literal["length", "sparsity", "body"]


# -- settings and points -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PaperSettings:
    """Extent of the measurement; the defaults are the paper's."""

    lengths: tuple[int, ...] = (16, 32, 48, 64, 80, 96, 112, 128)
    """Sequence lengths at sparsity .908."""
    draws: int = 10_000
    """Random inputs and masks per length."""
    sizes: tuple[int, ...] = (16, 32, 64)
    """Numbers of nodes for the sweep over sparsities."""
    sparsities: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.96)
    """Shares of zeros, as far as the diagonal allows. The largest possible one, 1 - 1/N, is added."""
    masks: int = 50_000
    """Random masks per size, spread over its sparsities."""
    body_draws: int = 1_000
    """Random inputs per body."""
    head_dim: int = 64
    """d_k, which the paper does not give; its imitation policies have 64, its RL policies 32."""
    dtype: str = "float32"
    """Arithmetic, by default that of policies; the longest length is measured in the other dtype too."""
    exp_flops: int = 1
    """Operations of one exponential: c2 of the appendix, which does not give it."""
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

    def points(self) -> list[SweepPoint]:
        """Return the points in the order in which they are measured."""
        other = next(dtype for dtype in DTYPES if dtype != self.dtype)
        lengths = [(length, self.dtype) for length in self.lengths] + [(length, other) for length in self.lengths[-1:]]
        return [
            *(
                SweepPoint("length", f"{length} nodes", length, SPARSITY, dtype, self.draws)
                for length, dtype in lengths
            ),
            *(point for size in self.sizes for point in self._sparsity_points(size)),
            *(SweepPoint("body", name, 0, None, self.dtype, self.body_draws) for name in BODIES),
        ]

    def _sparsity_points(self, size: int) -> list[SweepPoint]:
        grid = [*(sparsity for sparsity in self.sparsities if sparsity < 1 - 1 / size), 1 - 1 / size]
        draws = ceil(self.masks / len(grid))
        return [SweepPoint("sparsity", f"{size} nodes", size, sparsity, self.dtype, draws) for sparsity in grid]


@dataclass(frozen=True)
class SweepPoint:
    """One point of a sweep."""

    sweep: Sweep
    name: str
    num_nodes: int
    """0 for a body, whose mask gives the number."""
    sparsity: float | None
    """None for a body."""
    dtype: str
    draws: int

    @property
    def key(self) -> str:
        return f"{self.sweep}/{self.name}/{self.sparsity}/{self.dtype}"

    def mask_source(self, rng: np.random.Generator) -> Callable[[], Mask]:
        """Return a function that returns the body's mask, or draws a new random mask with each call."""
        if self.sparsity is None:
            body = BODIES[self.name]()
            return lambda: body
        return partial(random_mask, self.num_nodes, self.sparsity, rng)


QUICK = PaperSettings(
    lengths=(16, 64, 128), draws=30, sizes=(16, 32, 64), sparsities=(0.0, 0.4, 0.7, 0.9), masks=60, body_draws=10
)
"""Settings of `--quick`: every part, in seconds."""


# -- measurement -------------------------------------------------------------------------------------------------------


class PointTimer:
    """Timer of all implementations on the same inputs; it keeps the microseconds of every draw."""

    def __init__(self, implementations: Mapping[str, Implementation], head_dim: int, dtype: str) -> None:
        self.implementations, self.head_dim, self.dtype = implementations, head_dim, dtype
        self.runtimes: dict[str, list[float]] = {name: [] for name in implementations}
        self.preparations: dict[str, list[float]] = {name: [] for name in implementations}
        self.mask: Mask | None = None
        self.ready: dict[str, NumpyAttention] = {}

    def prepare(self, mask: Mask) -> None:
        """Precompute what depends on the mask alone; do nothing for the mask of the previous draw."""
        if mask is self.mask:
            return
        self.mask = mask
        for name, implementation in self.implementations.items():
            start = perf_counter()
            self.ready[name] = implementation.make(mask, self.head_dim, self.dtype)
            self.preparations[name].append(1e6 * (perf_counter() - start))

    def draw(self, mask: Mask, rng: np.random.Generator) -> None:
        """Time each implementation once, in random order, so that neither drift nor warm caches favour one.

        The second of two calls is timed, since on a robot the working memory is warm too.
        """
        self.prepare(mask)
        q, k, v = rng.standard_normal((3, len(mask), self.head_dim), dtype=np.dtype(self.dtype).type)
        if not any(self.runtimes.values()):
            check_agreement({name: attend(q, k, v) for name, attend in self.ready.items()}, self.dtype)
        steps = [[partial(attend, q, k, v)] for attend in self.ready.values()]
        for name, (ms,) in zip(self.ready, take_turns(steps, 1, warm=1, order=rng.permutation), strict=True):
            self.runtimes[name].append(1e3 * ms)


def measure(
    point: SweepPoint,
    implementations: Mapping[str, Implementation],
    head_dim: int,
    rng: np.random.Generator,
    exp_flops: int = 1,
) -> dict[str, Any]:
    """Measure one point and return its results, ready for JSON."""
    timer, draw_mask = PointTimer(implementations, head_dim, point.dtype), point.mask_source(rng)
    longest = 0
    for _ in range(point.draws):
        mask = draw_mask()
        longest += int(mask.sum(axis=1).max())
        timer.draw(mask, rng)
    nodes, ones = len(mask), int(mask.sum())
    density = ones / nodes**2
    medians = {name: float(np.median(times)) for name, times in timer.runtimes.items()}
    flops = {str(name): formula(name, nodes, density, head_dim, exp_flops) for name in ALGORITHMS}
    return {
        "key": point.key,
        "sweep": point.sweep,
        "name": point.name,
        "nodes": nodes,
        "ones": ones,
        "sparsity": 1 - density,
        "longest_row": longest / point.draws,
        "dtype": point.dtype,
        "draws": point.draws,
        "median_us": medians,
        "mean_us": {name: float(np.mean(times)) for name, times in timer.runtimes.items()},
        "prepare_us": {name: float(np.median(times)) for name, times in timer.preparations.items()},
        "speedup": {name: medians["vanilla"] / median for name, median in medians.items()},
        "flops": flops,
        "executed_flops": {name: flops[name] + sum(left_out(name, nodes, density).values()) for name in ALGORITHMS},
    }
