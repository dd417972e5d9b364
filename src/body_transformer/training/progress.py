"""How far a training run is: a bar on the terminal, nothing where there is none."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

REFRESH_HZ = 10


class Progress:
    """Steps, loss, speed and time left, on stderr."""

    def __init__(self, title: str = "", console: Console | None = None, quiet: bool = False) -> None:
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TextColumn("{task.fields[loss]}"),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
            disable=quiet,
        )
        self._title = title
        self._task = self._bars.add_task(title, total=None, speed="", loss="")
        self._num_steps, self._shown = 0, 0.0

    def reading(self, done: int, total: int) -> None:
        """How much of the data was read before training."""
        self._bars.start()
        self._bars.update(self._task, description=f"{self._title}: reads", completed=done, total=total)

    def start(self, step: int, num_steps: int) -> None:
        self._num_steps = num_steps
        self._bars.start()
        self._bars.reset(self._task, description=self._title, completed=step, total=num_steps)

    def advance(self, step: int) -> None:
        now = time.monotonic()
        if now - self._shown < 1 / REFRESH_HZ and step < self._num_steps:
            return  # an update may take less time than telling of it
        self._shown = now
        speed = self._bars.tasks[0].speed
        self._bars.update(self._task, completed=step, speed=f"{speed:.0f} steps/s" if speed else "")

    def show(self, loss: float) -> None:
        self._bars.update(self._task, loss=f"loss {loss:.4g}")

    def close(self) -> None:
        self._bars.stop()
