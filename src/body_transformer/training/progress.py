"""Progress of a training run, as a bar on the terminal."""

from __future__ import annotations

import time

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from ..console import SafeConsole
from ..text import printable

REFRESH_HZ = 10


class Progress:
    """Bar with steps, loss, speed and remaining time, on standard error."""

    def __init__(self, title: str = "", quiet: bool = False) -> None:
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TextColumn("{task.fields[loss]}"),
            TimeRemainingColumn(),
            console=SafeConsole(stderr=True),
            disable=quiet,
        )
        self._title = title = printable(title)
        self._task = self._bars.add_task(title, total=None, speed="", loss="")
        self._num_steps, self._shown = 0, 0.0

    def reading(self, done: int, total: int) -> None:
        """Show the progress of reading the data before training."""
        self._bars.start()
        self._bars.update(self._task, description=f"{self._title}: reading", completed=done, total=total)

    def start(self, step: int, num_steps: int) -> None:
        """Start the bar at a step of training."""
        self._num_steps = num_steps
        self._bars.start()
        self._bars.reset(self._task, description=self._title, completed=step, total=num_steps)

    def advance(self, step: int) -> None:
        """Show a step, at most `REFRESH_HZ` times per second."""
        now = time.monotonic()
        if now - self._shown < 1 / REFRESH_HZ and step < self._num_steps:
            return  # an update may take less time than showing it
        self._shown = now
        speed = self._bars.tasks[0].speed
        self._bars.update(self._task, completed=step, speed=f"{speed:.0f} steps/s" if speed else "")

    def show(self, loss: float) -> None:
        """Show the loss."""
        self._bars.update(self._task, loss=f"loss {loss:.4g}")

    def close(self) -> None:
        """Remove the bar."""
        self._bars.stop()
