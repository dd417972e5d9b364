"""Caches are cold after a sleep of some milliseconds, and warm for who has just done the last tick again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .controller import Controller, Policy
from .robot import Command, State

Given = tuple[int, float, State | None, int, str | None]
Sent = tuple[Command, str]
MOST_CALLS = 8
"""Of the policy; after four or five it is no quicker."""
COLD = 3.0
"""A call with cold caches takes as many times as long as one with warm ones."""


class Rehearsal:
    """A second controller, one tick behind the first: the same inputs, and commands that go nowhere.

    It runs the same code on data of the same size, the policy included, and because a controller has neither clock nor
    link, its state is always that which the first one had a tick ago. Then the policy alone, until the tick is due:
    where a computer is shared, its neighbours take the caches back within half a millisecond.
    """

    def __init__(self, second: Controller, policy: Policy, clock: Callable[[], float]) -> None:
        self._second, self._policy, self._clock = second, policy, clock
        self.call_s = 0.0
        """What the policy takes with warm caches."""
        self._last: tuple[Given, Sent] | None = None

    def remember(self, given: Given, sent: Sent) -> None:
        """What the first controller's `step` and `sent` were given in this tick; nothing is copied."""
        self._last = given, sent

    def __call__(self, obs: NDArray[np.float32], until_s: float) -> None:
        """The tick that was remembered, once; and the policy's answer to `obs`, while there is time."""
        if self._last is None:
            return
        (given, sent), self._last = self._last, None
        self._second.step(*given)
        self._second.sent(*sent)
        for _ in range(MOST_CALLS):
            if self._clock() + COLD * self.call_s >= until_s:
                return
            self._policy(obs)
