"""Floating-point operations of the three algorithms: the appendix's formulas, and what a program really executes.

The paper writes beta for two things: in its Section 5.4 the share of zeros in the mask, in its appendix the share of
ones. Here the first is `sparsity` and the second `density` = 1 - sparsity.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Algorithm = Literal["vanilla", "paper", "ours"]


@dataclass(frozen=True)
class Costs:
    """What the appendix leaves open."""

    root: int = 1
    """c1: operations of the one square root, that of the head's width."""
    exponential: int = 1
    """c2: operations of one exponential."""


@dataclass(frozen=True)
class Extent:
    """Which pairs of nodes each step of an algorithm visits: all of them, or those where the mask is True."""

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
"""Why a program executes more than the appendix counts."""


def formula(algorithm: Algorithm, num_nodes: int, density: float, head_dim: int, costs: Costs | None = None) -> int:
    """The appendix's count; `density` is the share of ones in the mask (the appendix's beta).

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
    """What a program executes beyond `formula`, by reason (see `REASONS`)."""
    scored, _ = pairs(algorithm, num_nodes, density)
    extra = {"maximum": 2 * scored - num_nodes}
    if algorithm == "vanilla":
        extra["mask"] = scored
    return extra


def pairs(algorithm: Algorithm, num_nodes: int, density: float) -> tuple[int, int]:
    """How many (query, key) pairs are scored, and how many (query, value) pairs multiplied."""
    if not 1 / num_nodes <= density <= 1:
        raise ValueError(
            f"density {density} with {num_nodes} nodes; the share of ones is from {1 / num_nodes:.4g} to 1"
        )
    number = {"all": num_nodes**2, "ones": round(density * num_nodes**2)}
    extent = ALGORITHMS[algorithm]
    return number[extent.scores], number[extent.values]
