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
        points = {"settings": plain(self.settings), "environment": self.environment, "points": self.points}
        return atomic_write(folder / UNFINISHED, json.dumps(points, indent=1) + "\n")

    def take_over(self, folder: Path, overwrite: bool = False) -> int:
        """Resume the stopped run in `folder`; return its number of points.

        Points of a run with other settings or on another machine took minutes to measure. They are only discarded with
        `overwrite`; without it, a ValueError is raised.
        """
        found = _read_unfinished(folder / UNFINISHED)
        differences = self._differences(found)
        if not differences:
            self.points = found["points"]
        elif found["points"] and not overwrite:
            raise ValueError(
                f"{str(folder / UNFINISHED)!r} has {len(found['points'])} points of a stopped run that differs "
                f"({'; '.join(differences)}); {found['environment'].get('command')!r} resumes it, "
                "--overwrite discards it, another --out keeps it"
            )
        return len(self.points)

    def _differences(self, found: Mapping[str, Any]) -> list[str]:
        """Return `draws 10000, here 50` for each setting or part of the environment that differs."""
        there = {name: found["environment"].get(name) for name in SAME_PLACE} | found["settings"]
        here = {name: self.environment.get(name) for name in SAME_PLACE} | plain(self.settings)
        names = [name for name in here if there.get(name) != here[name]]
        return [f"{name} {there.get(name)}, here {here[name]}" for name in names]


def _read_unfinished(path: Path) -> dict[str, Any]:
    """Read the file of a stopped run; return an empty run if it is missing or has another format."""
    empty: dict[str, Any] = {"settings": {}, "environment": {}, "points": []}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return empty
    is_ours = isinstance(found, dict) and all(type(found.get(key)) is type(value) for key, value in empty.items())
    return found if is_ours else empty
