"""One point's runtimes, all contenders on the same inputs by turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any

import numpy as np

from .contenders import Attention, Contender, Floats, check_agreement
from .flops import ALGORITHMS, Costs, formula, left_out
from .masks import Mask
from .sweeps import Point

Nanoseconds = dict[str, list[int]]


class Timer:
    """Runtimes of contenders, draw after draw."""

    def __init__(self, contenders: Mapping[str, Contender], head_dim: int, dtype: str) -> None:
        self.contenders, self.head_dim, self.dtype = contenders, head_dim, dtype
        self.runtimes: Nanoseconds = {name: [] for name in contenders}
        self.preparations: Nanoseconds = {name: [] for name in contenders}
        self.mask: Mask | None = None
        self.ready: dict[str, Attention] = {}

    def prepare(self, mask: Mask) -> None:
        """What is known from the mask alone; nothing where it is the same mask as before."""
        if mask is self.mask:
            return
        self.mask = mask
        for name, contender in self.contenders.items():
            start = perf_counter_ns()
            self.ready[name] = contender.prepare(mask, self.head_dim, self.dtype)
            self.preparations[name].append(perf_counter_ns() - start)

    def draw(self, mask: Mask, rng: np.random.Generator) -> None:
        """Every contender once, in random order, so that neither drift nor warm caches favour one."""
        self.prepare(mask)
        shape = (len(mask), self.head_dim)
        q, k, v = (rng.standard_normal(shape, dtype=np.dtype(self.dtype).type) for _ in "qkv")
        names = list(self.contenders)
        if not self.runtimes[names[0]]:
            check_agreement({name: self.ready[name](q, k, v) for name in names}, self.dtype)
        for turn in rng.permutation(len(names)):
            name = names[turn]
            self.runtimes[name].append(time_call(self.ready[name], q, k, v))


def time_call(attention: Attention, q: Floats, k: Floats, v: Floats) -> int:
    """Nanoseconds of a second call: on a robot, working memory is not new either."""
    attention(q, k, v)
    start = perf_counter_ns()
    attention(q, k, v)
    return perf_counter_ns() - start


def measure(
    point: Point,
    contenders: Mapping[str, Contender],
    head_dim: int,
    rng: np.random.Generator,
    costs: Costs | None = None,
    drawn: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """What is known of a point afterwards, ready for JSON; `drawn` is called after each draw."""
    timer = Timer(contenders, head_dim, point.dtype)
    masks = point.masks(rng)
    longest = 0
    for _ in range(point.draws):
        mask = masks.draw()
        longest += int(mask.sum(axis=1).max())
        timer.draw(mask, rng)
        drawn()
    num_nodes, ones = len(mask), int(mask.sum())
    medians = {name: float(np.median(times)) / 1e3 for name, times in timer.runtimes.items()}
    return {
        "key": point.key,
        "sweep": point.sweep,
        "name": point.name,
        "nodes": num_nodes,
        "ones": ones,
        "sparsity": 1 - ones / num_nodes**2,
        "longest_row": longest / point.draws,
        "dtype": point.dtype,
        "draws": point.draws,
        "median_us": medians,
        "mean_us": {name: float(np.mean(times)) / 1e3 for name, times in timer.runtimes.items()},
        "prepare_us": {name: float(np.median(times)) / 1e3 for name, times in timer.preparations.items()},
        "speedup": {name: medians["vanilla"] / median for name, median in medians.items()},
        **count_flops(num_nodes, ones, head_dim, costs),
    }


def count_flops(num_nodes: int, ones: int, head_dim: int, costs: Costs | None = None) -> dict[str, dict[str, int]]:
    """By the appendix's formula, and with what a program executes besides."""
    density = ones / num_nodes**2
    flops = {str(name): formula(name, num_nodes, density, head_dim, costs) for name in ALGORITHMS}
    extra = {str(name): sum(left_out(name, num_nodes, density).values()) for name in ALGORITHMS}
    return {"flops": flops, "executed_flops": {name: flops[name] + extra[name] for name in flops}}
