"""A bad network: what goes in comes out late, out of order, twice, or not at all."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

Item = TypeVar("Item")


@dataclass(frozen=True)
class Network:
    """What one direction does to datagrams."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    """Probability."""
    duplicate: float = 0.0
    """Probability."""


class Channel(Generic[Item]):
    """One direction."""

    def __init__(self, network: Network, rng: np.random.Generator) -> None:
        self._network = network
        self._rng = rng
        self._waiting: list[tuple[float, int, Item]] = []
        self._count = 0

    def put(self, now_s: float, item: Item) -> None:
        """The datagram enters the network."""
        network, rng = self._network, self._rng
        if network.loss and rng.random() < network.loss:
            return
        copies = 2 if network.duplicate and rng.random() < network.duplicate else 1
        for _ in range(copies):
            jitter_s = rng.uniform(0.0, network.jitter_s) if network.jitter_s else 0.0
            self._count += 1  # without jitter they stay in order
            heapq.heappush(self._waiting, (now_s + network.delay_s + jitter_s, self._count, item))

    def take(self, now_s: float) -> list[Item]:
        """The datagrams that have arrived."""
        arrived = []
        while self._waiting and self._waiting[0][0] <= now_s + 1e-9:
            arrived.append(heapq.heappop(self._waiting)[2])
        return arrived

    def clear(self) -> None:
        """Nothing is under way any more."""
        self._waiting.clear()
