"""The three algorithms once more, number by number, every operation counted as it happens."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import exp, sqrt

from .flops import ALGORITHMS, Algorithm, Costs

Rows = Sequence[Sequence[float]]


@dataclass
class Tally:
    """Arithmetic that keeps count."""

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
        """Additions, comparisons, products and quotients are one operation each."""
        costs = costs or Costs()
        weights = {"root": costs.root, "exponential": costs.exponential}
        return sum(weights.get(operation, 1) * count for operation, count in self.counts.items())


def count(
    algorithm: Algorithm, q: Rows, k: Rows, v: Rows, mask: Sequence[Sequence[bool]], as_executed: bool = False
) -> tuple[list[list[float]], Tally]:
    """The output [N, D] and the tally of its operations.

    Args:
        algorithm: which pairs are visited.
        q, k, v: [N, D].
        mask: [N, N].
        as_executed: with what the appendix leaves out and a program needs: each row's largest score is found and
            subtracted, and vanilla attention adds the mask. Without it, vanilla attention is not masked at all.
    """
    tally, extent, everyone = Tally(), ALGORITHMS[algorithm], range(len(q))
    width = tally.root(len(q[0]))
    out = []
    for i in everyone:
        neighbours = [j for j in everyone if mask[i][j]]
        seen = everyone if extent.scores == "all" else neighbours
        scores = [tally.divide(tally.dot(q[i], k[j]), width) for j in seen]
        if as_executed and extent.scores == "all":
            scores = [
                tally.add(score, 0.0 if mask[i][j] else float("-inf")) for score, j in zip(scores, seen, strict=True)
            ]
        weights = dict(zip(seen, softmax(tally, scores, as_executed), strict=True))
        valued = everyone if extent.values == "all" else neighbours
        row = [weights.get(j, 0.0) for j in valued]
        out.append([tally.dot(row, [v[j][column] for j in valued]) for column in range(len(v[0]))])
    return out, tally


def softmax(tally: Tally, scores: Sequence[float], subtract_largest: bool) -> list[float]:
    if subtract_largest:
        largest = reduce(tally.larger, scores)
        scores = [tally.subtract(score, largest) for score in scores]
    exponentials = [tally.exponential(score) for score in scores]
    total = reduce(tally.add, exponentials)
    return [tally.divide(exponential, total) for exponential in exponentials]
