"""Stop requests: a loop acts on a stop signal between two updates, and its worker processes ignore it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:  # simulator processes, which import this module, start much faster without torch
    import torch

ASK_EVERY = 10
"""Number of updates after which several processes agree again whether to stop."""


class StopRequest:
    """A record of Ctrl-C and SIGTERM. Inside the context, they do not end the process, except a second Ctrl-C."""

    def __init__(self) -> None:
        self.signal_name = ""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.signal_name and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name

    def is_asked(self, step: int, device: torch.device | str = "cpu") -> bool:
        """Return whether to stop, with the same answer in every process, so that none waits for another."""
        import torch
        from torch import distributed

        if not (distributed.is_available() and distributed.is_initialized()):
            return bool(self.signal_name)
        if step % ASK_EVERY:
            return False
        asked = torch.tensor(float(bool(self.signal_name)), device=device)
        distributed.all_reduce(asked)
        if float(asked) == 0:
            return False
        self.signal_name = self.signal_name or "another process"
        return True


@contextmanager
def signals_held() -> Iterator[None]:
    """Make processes that are started inside the context ignore stop signals.

    Ctrl-C goes to all processes of a terminal, and SIGTERM often to a whole group. But the parent may have to finish an
    evaluation first. The started processes end with their parent, or are killed.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # otherwise it starts with the first process, and unblocks both signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Saver:
    """A timer that saves a run at fixed intervals, and when a stop is requested."""

    def __init__(self, save: Callable[[], None], every_s: float, run: Path) -> None:
        self._save, self._every_s, self._run = save, every_s, run
        self._saved = time.monotonic()

    def after(self, step: int, stop: StopRequest, device: torch.device | str) -> None:
        """Save after a step if a save is due; save and raise KeyboardInterrupt if a stop is requested."""
        if stop.is_asked(step, device):
            self._save()
            raise KeyboardInterrupt(f"stopped by {stop.signal_name} at step {step}; continue with --resume {self._run}")
        if time.monotonic() - self._saved > self._every_s:
            self._save()
            self._saved = time.monotonic()
