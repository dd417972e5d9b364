"""Caches are cold after a sleep of some milliseconds, and warm for who has just done the last tick again."""

from __future__ import annotations

from .controller import Controller
from .robot import Command, State


class Rehearsal:
    """A second controller, one tick behind the first: the same inputs, and commands that go nowhere.

    It runs the same code on data of the same size, the policy included, and because a controller has neither clock nor
    link, its state is always that which the first one had a tick ago.
    """

    def __init__(self, second: Controller) -> None:
        self._second = second
        self._last: tuple[int, float, State | None, int, str | None] | None = None
        self._sent: tuple[Command, str] | None = None

    def remember(
        self,
        given: tuple[int, float, State | None, int, str | None],
        sent: tuple[Command, str],
    ) -> None:
        """What the first controller's `step` and `sent` were given in this tick; nothing is copied."""
        self._last, self._sent = given, sent

    def __call__(self) -> None:
        """The tick that was remembered, once."""
        if self._last is None:
            return
        self._second.step(*self._last)
        if self._sent is not None:
            self._second.sent(*self._sent)
        self._last = None
