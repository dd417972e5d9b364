"""One run of the analysis, which can be saved and resumed."""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...files import atomic_write
from ...schema import plain
from .algorithms import available
from .sweeps import PaperSettings, SweepPoint, measure

Point = dict[str, Any]
"""The results of one SweepPoint, as `sweeps.measure` returns them."""
SAME_PLACE = ("device", "body_transformer", "numpy", "torch", "threads", "compiler")
"""Parts of the environment that must be the same when a run is resumed."""
UNFINISHED = "unfinished.json"


@dataclass
class Record:
    """Settings, environment, and the points measured so far."""

    settings: PaperSettings
    environment: Mapping[str, str]
    points: list[Point] = field(default_factory=list)

    def sweep(self, name: str) -> list[Point]:
        return [point for point in self.points if point["sweep"] == name]

    def missing(self) -> list[SweepPoint]:
        done = {point["key"] for point in self.points}
        return [point for point in self.settings.points() if point.key not in done]

    def measure(self, point: SweepPoint) -> None:
        """Measure and add a point; its random numbers do not depend on other points."""
        settings = self.settings
        rng = np.random.default_rng([settings.seed, settings.points().index(point)])
        gc.collect()
        gc.disable()  # no garbage collection inside a measurement
        try:
            self.points.append(measure(point, available(), settings.head_dim, rng, settings.exp_flops))
        finally:
            gc.enable()

    def save(self, folder: Path) -> Path:
        """Save the points measured so far."""
        return atomic_write(folder / UNFINISHED, json.dumps(self._content(), indent=1) + "\n")

    def take_over(self, folder: Path, overwrite: bool = False) -> int:
        """Resume the stopped run in `folder`; return its number of points.

        Points of a run with other settings or on another machine took minutes to measure. They are only discarded with
        `overwrite`; without it, a ValueError is raised.
        """
        file = folder / UNFINISHED
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            points, there, command = found["points"], _conditions(found), found["environment"].get("command")
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):  # missing, or of another format
            return 0
        here = _conditions(self._content())
        names = [name for name in here if there.get(name) != here[name]]
        if not names:
            self.points = points
        elif points and not overwrite:
            differences = "; ".join(f"{name} {there.get(name)}, here {here[name]}" for name in names)
            raise ValueError(
                f"{str(file)!r} has {len(points)} points of a stopped run that differs ({differences}); "
                f"{command!r} resumes it, --overwrite discards it, another --out keeps it"
            )
        return len(self.points)

    def _content(self) -> dict[str, Any]:
        return {"settings": plain(self.settings), "environment": self.environment, "points": self.points}


def _conditions(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must be the same when a run is resumed: the settings and SAME_PLACE."""
    return {**{name: found["environment"].get(name) for name in SAME_PLACE}, **found["settings"]}
