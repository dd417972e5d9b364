"""How rollouts went, whatever simulator they were in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from ..training.summary import Estimate, summarize

METRICS = ("total_reward", "length", "survived")
OPTIONAL = ("forward_speed", "speed_error")
"""Of environments that say them."""


@dataclass(frozen=True)
class Result:
    """How one rollout went."""

    length: int
    """Steps until the end."""
    total_reward: float
    """The return, not scaled."""
    survived: float
    """1, or 0 for a death."""
    forward_speed: float | None = None
    """m/s ahead, on average: along the world's x axis, or where the robot looks if it is told a speed."""
    speed_error: float | None = None
    """How far that is from the commanded speed."""


def results(
    lengths: Tensor, returns: Tensor, died: Tensor, speeds: Tensor | None = None, commanded: Tensor | None = None
) -> list[Result]:
    """Of B rollouts, [B] each."""
    errors = None if speeds is None or commanded is None else (speeds - commanded).abs()
    columns: Iterable[list[float | None]] = (
        [None] * len(lengths) if column is None else column.tolist()
        for column in (returns, (~died).float(), speeds, errors)
    )
    return [Result(int(length), *rest) for length, *rest in zip(lengths.tolist(), *columns, strict=True)]


def means(found: Sequence[Result]) -> dict[str, Estimate]:
    """Metric -> its mean over the rollouts."""
    return summarize(found, [*METRICS, *(name for name in OPTIONAL if getattr(found[0], name) is not None)])
