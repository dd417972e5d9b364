"""Stop signals, Ctrl-C and SIGTERM: what they do to a command, to a loop that saves first, and to worker processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import active_children, resource_tracker
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:  # simulator processes, which import this module, start much faster without torch
    import torch

ASK_EVERY = 10
"""Number of updates after which several processes agree again whether to stop."""


class Stopped(KeyboardInterrupt):
    """A stop signal has come; the command ends with the status 128 + `number`: 130 for Ctrl-C, 143 for SIGTERM."""

    def __init__(self, number: int, text: str = "") -> None:
        super().__init__(*([text] if text else []))
        self.number = number


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Raise `Stopped` at the first Ctrl-C or SIGTERM inside the context; end the process at once at the second."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            raise Stopped(number)
        for process in active_children():
            process.kill()  # they ignore both signals
        os._exit(128 + number)

    with _handled(handle):
        yield


class StopRequest:
    """A record of Ctrl-C and SIGTERM. Inside the context, the first does not end the process; the second raises."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._advice: str | None = None
        self._handlers = ExitStack()

    @property
    def signal_name(self) -> str:
        """Name of the signal that has come; empty if none has."""
        if self.number is None:
            return ""
        return "Ctrl-C" if self.number == signal.SIGINT else signal.Signals(self.number).name

    def __enter__(self) -> Self:
        self._handlers.enter_context(_handled(self._handle))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handlers.close()
        if self.number is not None and error is None:
            raise self.stopped()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_second, self.number = self.number is not None, number
        if is_second or self._advice is not None:
            raise self.stopped(self._advice or "")

    def stopped(self, advice: str = "") -> Stopped:
        """Return the exception that ends the command, with advice on how to continue."""
        name = self.signal_name or "another process"
        return Stopped(self.number or signal.SIGTERM, f"stopped by {name}{advice}")

    def end(self, advice: str) -> None:
        """Let signals raise at once from now on, because nothing is left to save; raise if one has come already."""
        self._advice = advice
        if self.number is not None:
            raise self.stopped(advice)

    def is_asked(self, step: int, device: torch.device | str = "cpu") -> bool:
        """Return whether to stop, with the same answer in every process, so that none waits for another."""
        import torch
        from torch import distributed

        if not (distributed.is_available() and distributed.is_initialized()):
            return self.number is not None
        if step % ASK_EVERY:
            return False
        asked = torch.tensor(float(self.number is not None), device=device)
        distributed.all_reduce(asked)
        return float(asked) > 0


@contextmanager
def _handled(handle: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM by `handle` inside the context; in the main thread, which alone gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
        self._save, self._every_s = save, every_s
        self._saved = time.monotonic()
        self.advice = f"continue with --resume {run}"

    def after(self, step: int, stop: StopRequest, device: torch.device | str) -> None:
        """Save after a step if a save is due; save and raise `Stopped` if a stop is requested."""
        if stop.is_asked(step, device):
            self._save()
            raise stop.stopped(f" at step {step}; {self.advice}")
        if time.monotonic() - self._saved > self._every_s:
            self._save()
            self._saved = time.monotonic()
