"""Floating-point operations of the three algorithms: the appendix's formulas, and a counted evaluation.

The paper uses beta for two quantities: the share of zeros in the mask in its Section 5.4, and the share of ones in its
appendix. Here the first is `sparsity` and the second `density` = 1 - sparsity.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import exp, sqrt
from typing import Literal

import numpy as np

from ..masks import random_mask

Algorithm = Literal["vanilla", "paper", "ours"]
Rows = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Extent:
    """Pairs of nodes that each step of an algorithm visits: all of them, or those where the mask is True."""

    scores: Literal["all", "ones"]
    values: Literal["all", "ones"]


ALGORITHMS: Mapping[Algorithm, Extent] = {
    "vanilla": Extent(scores="all", values="all"),
    "paper": Extent(scores="ones", values="all"),
    "ours": Extent(scores="ones", values="ones"),
}

REASONS = {
    "maximum": "softmax without overflow looks for each row's largest score and subtracts it",
    "mask": "vanilla attention adds the mask to every score",
}
"""Operations that a program executes beyond the appendix's count -> the reason."""


# -- formulas ----------------------------------------------------------------------------------------------------------


def formula(algorithm: Algorithm, num_nodes: int, density: float, head_dim: int, exp_flops: int = 1) -> int:
    """Return the appendix's count of operations.

    The square root costs c1 = 1, an exponential c2 = `exp_flops`. `density` is the share of ones in the mask, the
    appendix's beta.

    vanilla    4 n²d + (2 + c2) n² - nd - n + c1
    paper      (2 density + 2) n²d + (2 + c2) density n² - nd - n + c1
    ours       4 density n²d + (2 + c2) density n² - nd - n + c1, by the same reasoning
    """
    scored, valued = pairs(algorithm, num_nodes, density)
    scores = 2 * scored * head_dim + 1
    softmax = (2 + exp_flops) * scored - num_nodes
    values = 2 * valued * head_dim - num_nodes * head_dim
    return scores + softmax + values


def left_out(algorithm: Algorithm, num_nodes: int, density: float) -> dict[str, int]:
    """Return the operations that a program executes beyond `formula`, by reason (see `REASONS`)."""
    scored, _ = pairs(algorithm, num_nodes, density)
    extra = {"maximum": 2 * scored - num_nodes}
    if algorithm == "vanilla":
        extra["mask"] = scored
    return extra


def pairs(algorithm: Algorithm, num_nodes: int, density: float) -> tuple[int, int]:
    """Return the number of (query, key) pairs that are scored, and of (query, value) pairs that are multiplied."""
    if not 1 / num_nodes <= density <= 1:
        raise ValueError(
            f"density {density} with {num_nodes} nodes; the share of ones is from {1 / num_nodes:.4g} to 1"
        )
    number = {"all": num_nodes**2, "ones": round(density * num_nodes**2)}
    extent = ALGORITHMS[algorithm]
    return number[extent.scores], number[extent.values]


# -- counted evaluation ------------------------------------------------------------------------------------------------


OPERATIONS: Mapping[str, Callable[..., float]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "compare": max,
    "exponential": exp,
    "root": sqrt,
}


class OperationCount:
    """Scalar arithmetic that counts its operations."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def do(self, operation: str, *numbers: float) -> float:
        """Execute one of OPERATIONS."""
        self.counts[operation] += 1
        return OPERATIONS[operation](*numbers)

    def total(self, operation: str, numbers: Iterable[float]) -> float:
        """Combine all numbers, one after the other."""
        return reduce(partial(self.do, operation), numbers)

    def dot(self, a: Iterable[float], b: Iterable[float]) -> float:
        return self.total("add", map(partial(self.do, "multiply"), a, b))

    def flops(self, exp_flops: int = 1) -> int:
        """Return the total; an exponential is `exp_flops` operations, every other operation is one."""
        return self.counts.total() + (exp_flops - 1) * self.counts["exponential"]


def count(
    algorithm: Algorithm, q: Rows, k: Rows, v: Rows, mask: Sequence[Sequence[bool]], as_executed: bool = False
) -> tuple[list[list[float]], OperationCount]:
    """Evaluate one algorithm in scalar arithmetic; return the output [N, D] and the count of its operations.

    Args:
        algorithm: which pairs are visited.
        q, k, v: [N, D].
        mask: [N, N].
        as_executed: include the operations that a program needs and the appendix leaves out. Each row's largest score
            is found and subtracted, and vanilla attention adds the mask; otherwise, vanilla attention has no mask.
    """
    tally, extent, nodes = OperationCount(), ALGORITHMS[algorithm], range(len(q))
    width = tally.do("root", len(q[0]))
    out = []
    for i in nodes:
        neighbours = [j for j in nodes if mask[i][j]]
        seen = nodes if extent.scores == "all" else neighbours
        scores = [tally.do("divide", tally.dot(q[i], k[j]), width) for j in seen]
        if as_executed and extent.scores == "all":
            scores = [
                tally.do("add", score, 0.0 if mask[i][j] else float("-inf"))
                for score, j in zip(scores, seen, strict=True)
            ]
        weights = dict(zip(seen, _softmax(tally, scores, as_executed), strict=True))
        valued = nodes if extent.values == "all" else neighbours
        row = [weights.get(j, 0.0) for j in valued]
        out.append([tally.dot(row, [v[j][column] for j in valued]) for column in range(len(v[0]))])
    return out, tally


def _softmax(tally: OperationCount, scores: Sequence[float], subtract_largest: bool) -> list[float]:
    if subtract_largest:
        largest = tally.total("compare", scores)
        scores = [tally.do("subtract", score, largest) for score in scores]
    exponentials = [tally.do("exponential", score) for score in scores]
    total = tally.total("add", exponentials)
    return [tally.do("divide", exponential, total) for exponential in exponentials]


def compare_counts(head_dim: int, sparsity: float, exp_flops: int, num_nodes: int = 16) -> list[dict[str, object]]:
    """Compare the formulas with the counted evaluation, at a size small enough for it."""
    rng = np.random.default_rng(0)
    mask = random_mask(num_nodes, sparsity, rng)
    q, k, v = rng.standard_normal((3, num_nodes, head_dim)).tolist()
    density = float(mask.mean())
    rows: list[dict[str, object]] = []
    for name in ALGORITHMS:
        counted, executed = (
            count(name, q, k, v, mask.tolist(), as_executed)[1].flops(exp_flops) for as_executed in (False, True)
        )
        rows.append(
            {
                "algorithm": name,
                "nodes": num_nodes,
                "ones": int(mask.sum()),
                "head_dim": head_dim,
                "formula": formula(name, num_nodes, density, head_dim, exp_flops),
                "counted": counted,
                "executed": executed,
                "executed_over_formula": executed / counted - 1,
                "reasons": {REASONS[why]: extra for why, extra in left_out(name, num_nodes, density).items()},
            }
        )
    return rows
