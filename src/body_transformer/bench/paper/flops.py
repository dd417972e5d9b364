"""Floating-point operations of the three algorithms: the appendix's formulas, and an evaluation that counts.

The paper writes beta for two quantities: in its Section 5.4 the share of zeros in the mask, in its appendix the share
of ones. Here the first is `sparsity` and the second `density` = 1 - sparsity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import exp, sqrt
from typing import Literal

import numpy as np

from .masks import random_mask

Algorithm = Literal["vanilla", "paper", "ours"]
Rows = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Costs:
    """Costs that the appendix leaves open."""

    root: int = 1
    """c1: operations of the one square root, that of the head's width."""
    exponential: int = 1
    """c2: operations of one exponential."""


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
"""Reasons why a program executes more operations than the appendix counts."""


# -- formulas ----------------------------------------------------------------------------------------------------------


def formula(algorithm: Algorithm, num_nodes: int, density: float, head_dim: int, costs: Costs | None = None) -> int:
    """Return the appendix's count; `density` is the share of ones in the mask (the appendix's beta).

    vanilla    4 n²d + (2 + c2) n² - nd - n + c1
    paper      (2 density + 2) n²d + (2 + c2) density n² - nd - n + c1
    ours       4 density n²d + (2 + c2) density n² - nd - n + c1, by the same reasoning
    """
    costs = costs or Costs()
    scored, valued = pairs(algorithm, num_nodes, density)
    scores = 2 * scored * head_dim + costs.root
    softmax = (2 + costs.exponential) * scored - num_nodes
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


@dataclass
class OperationCount:
    """Scalar arithmetic that counts its operations."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, a: float, b: float) -> float:
        self.counts["add"] += 1
        return a + b

    def subtract(self, a: float, b: float) -> float:
        self.counts["subtract"] += 1
        return a - b

    def multiply(self, a: float, b: float) -> float:
        self.counts["multiply"] += 1
        return a * b

    def divide(self, a: float, b: float) -> float:
        self.counts["divide"] += 1
        return a / b

    def larger(self, a: float, b: float) -> float:
        self.counts["compare"] += 1
        return max(a, b)

    def exponential(self, a: float) -> float:
        self.counts["exponential"] += 1
        return exp(a)

    def root(self, a: float) -> float:
        self.counts["root"] += 1
        return sqrt(a)

    def dot(self, a: Iterable[float], b: Iterable[float]) -> float:
        return reduce(self.add, map(self.multiply, a, b))

    def flops(self, costs: Costs | None = None) -> int:
        """Return the total; additions, comparisons, products and quotients are one operation each."""
        costs = costs or Costs()
        weights = {"root": costs.root, "exponential": costs.exponential}
        return sum(weights.get(operation, 1) * count for operation, count in self.counts.items())


def count(
    algorithm: Algorithm, q: Rows, k: Rows, v: Rows, mask: Sequence[Sequence[bool]], as_executed: bool = False
) -> tuple[list[list[float]], OperationCount]:
    """Evaluate one algorithm number by number; return the output [N, D] and the count of its operations.

    Args:
        algorithm: which pairs are visited.
        q, k, v: [N, D].
        mask: [N, N].
        as_executed: include what the appendix leaves out and a program needs: each row's largest score is found and
            subtracted, and vanilla attention adds the mask. Without it, vanilla attention is not masked at all.
    """
    tally, extent, nodes = OperationCount(), ALGORITHMS[algorithm], range(len(q))
    width = tally.root(len(q[0]))
    out = []
    for i in nodes:
        neighbours = [j for j in nodes if mask[i][j]]
        seen = nodes if extent.scores == "all" else neighbours
        scores = [tally.divide(tally.dot(q[i], k[j]), width) for j in seen]
        if as_executed and extent.scores == "all":
            scores = [
                tally.add(score, 0.0 if mask[i][j] else float("-inf")) for score, j in zip(scores, seen, strict=True)
            ]
        weights = dict(zip(seen, _softmax(tally, scores, as_executed), strict=True))
        valued = nodes if extent.values == "all" else neighbours
        row = [weights.get(j, 0.0) for j in valued]
        out.append([tally.dot(row, [v[j][column] for j in valued]) for column in range(len(v[0]))])
    return out, tally


def _softmax(tally: OperationCount, scores: Sequence[float], subtract_largest: bool) -> list[float]:
    if subtract_largest:
        largest = reduce(tally.larger, scores)
        scores = [tally.subtract(score, largest) for score in scores]
    exponentials = [tally.exponential(score) for score in scores]
    total = reduce(tally.add, exponentials)
    return [tally.divide(exponential, total) for exponential in exponentials]


def compare_counts(head_dim: int, sparsity: float, costs: Costs, num_nodes: int = 16) -> list[dict[str, object]]:
    """Compare the formulas with the counted evaluation, at a size at which that is quick."""
    rng = np.random.default_rng(0)
    mask = random_mask(num_nodes, sparsity, rng)
    q, k, v = rng.standard_normal((3, num_nodes, head_dim)).tolist()
    density, rows = float(mask.mean()), []
    for name in ALGORITHMS:
        counted, executed = (count(name, q, k, v, mask.tolist(), extra)[1].flops(costs) for extra in (False, True))
        reasons = {REASONS[why]: extra for why, extra in left_out(name, num_nodes, density).items()}
        row = {"algorithm": name, "nodes": num_nodes, "ones": int(mask.sum()), "head_dim": head_dim}
        row |= {"formula": formula(name, num_nodes, density, head_dim, costs), "counted": counted}
        rows.append(row | {"executed": executed, "executed_over_formula": executed / counted - 1, "reasons": reasons})
    return rows
