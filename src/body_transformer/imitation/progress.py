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

    def start(self, step: int, num_steps: int) -> None:
        self._num_steps, self._shown = num_steps, 0.0
        self._bars.start()
        self._task = self._bars.add_task(self._title, completed=step, total=num_steps, speed="", loss="")

    def advance(self, step: int) -> None:
        now = time.monotonic()
        if now - self._shown < 1 / REFRESH_HZ and step < self._num_steps:
            return  # an update may take less time than telling of it
        self._shown = now
        speed = self._bars.tasks[self._task].speed
        self._bars.update(self._task, completed=step, speed=f"{speed:.0f} steps/s" if speed else "")

    def show(self, loss: float) -> None:
        self._bars.update(self._task, loss=f"loss {loss:.4g}")

    def stop(self) -> None:
        self._bars.stop()
