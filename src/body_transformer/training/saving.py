"""Saver: checkpoints in time, and the last one when somebody asks to stop."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from .stopping import StopRequest


class StoppedEarly(Exception):  # noqa: N818, nothing went wrong
    """The user asked for it; a checkpoint was written."""


class Saver:
    """Calls `save` where a checkpoint is due."""

    def __init__(self, save: Callable[[], None], every_s: float) -> None:
        self._save, self._every_s = save, every_s
        self._saved = time.monotonic()

    def after(self, step: int, stop: StopRequest, device: torch.device | str) -> None:
        """Between two steps of a loop."""
        if stop.is_asked(step, device):
            self._save()
            raise StoppedEarly(f"stopped by {stop.signal_name} at step {step}; go on with --resume")
        if time.monotonic() - self._saved > self._every_s:
            self._save()
            self._saved = time.monotonic()
