"""The points that a run has measured so far: saved, resumed and summarised."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...files import atomic_write
from ...schema import plain
from .algorithms import IMPLEMENTATIONS
from .flops import compare_counts
from .sweeps import SPARSITY, PaperSettings

Point = dict[str, Any]
"""The results of one SweepPoint, as `sweeps.measure` returns them."""
SAME_PLACE = ("device", "body_transformer", "numpy", "torch", "compiler")
"""A run resumes another only if they agree in these parts of the environment."""
UNFINISHED = "unfinished.json"


@dataclass
class Record:
    """Settings, environment, and the points measured so far."""

    settings: PaperSettings
    environment: Mapping[str, str]
    points: list[Point] = field(default_factory=list)

    def sweep(self, name: str) -> list[Point]:
        return [point for point in self.points if point["sweep"] == name]

    def save(self, folder: Path) -> Path:
        """Save the points measured so far."""
        points = {"settings": plain(self.settings), "environment": self.environment, "points": self.points}
        return atomic_write(folder / UNFINISHED, json.dumps(points, indent=1) + "\n")

    def take_over(self, folder: Path, overwrite: bool = False) -> int:
        """Continue a stopped run with the same settings on the same machine; return its number of points.

        A different run is refused, since its points took minutes; with `overwrite` it is discarded.
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
        """Return `draws 10000, here 50` for everything that the results depend on."""
        there = {name: found["environment"].get(name) for name in SAME_PLACE} | found["settings"]
        here = {name: self.environment.get(name) for name in SAME_PLACE} | plain(self.settings)
        names = [name for name in here if there.get(name) != here[name]]
        return [f"{name} {there.get(name)}, here {here[name]}" for name in names]

    def to_dict(self) -> dict[str, Any]:
        return {
            "bench": "paper",
            "environment": dict(self.environment),
            "settings": plain(self.settings),
            "contenders": {name: one.label for name, one in IMPLEMENTATIONS.items()},
            "headline": headline(self.sweep("length")),
            "break_even_sparsity": break_even(self.sweep("sparsity")),
            "flop_counts": compare_counts(self.settings.head_dim, SPARSITY, self.settings.exp_flops),
            "points": self.points,
        }


def _read_unfinished(path: Path) -> dict[str, Any]:
    """Read the points of a stopped run; return none if the file is missing or has another format."""
    empty: dict[str, Any] = {"settings": {}, "environment": {}, "points": []}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return empty
    is_ours = isinstance(found, dict) and all(type(found.get(key)) is type(value) for key, value in empty.items())
    return found if is_ours else empty


# -- what follows from the points --------------------------------------------------------------------------------------


def headline(lengths: Sequence[Point]) -> list[Point]:
    """Return, for each dtype at the longest length, the fastest of ours and its speed-up over vanilla NumPy."""
    longest = max((point["nodes"] for point in lengths), default=0)
    rows = []
    for point in (point for point in lengths if point["nodes"] == longest):
        best = best_of_ours(point)
        row = {key: point[key] for key in ("nodes", "sparsity", "dtype", "draws")}
        mean_ratio = point["mean_us"]["vanilla"] / point["mean_us"][best]
        rows.append(row | {"best": best, "speedup": point["speedup"][best], "speedup_of_means": mean_ratio})
    return rows


def best_of_ours(point: Point) -> str:
    own: list[str] = [name for name in point["speedup"] if IMPLEMENTATIONS[name].is_ours]
    return max(own, key=point["speedup"].__getitem__)


def break_even(points: Sequence[Point]) -> dict[str, dict[str, float | None]]:
    """Return size -> implementation -> the sparsity from which it is faster than vanilla; None if it never is."""
    sizes: dict[str, list[Point]] = {}
    for point in points:
        sizes.setdefault(point["name"], []).append(point)
    return {
        size: {
            name: crossing([p["sparsity"] for p in found], [p["speedup"][name] for p in found])
            for name in found[0]["speedup"]
            if name != "vanilla"
        }
        for size, found in sizes.items()
    }


def crossing(sparsities: Sequence[float], speedups: Sequence[float]) -> float | None:
    """Return where the speed-up last rises above 1, interpolated linearly between two measured sparsities."""
    slower = [index for index, speedup in enumerate(speedups) if speedup < 1]
    if not slower:
        return sparsities[0]
    last = slower[-1]
    if last == len(speedups) - 1:
        return None
    return float(np.interp(1, speedups[last : last + 2], sparsities[last : last + 2]))
