"""What a run has measured so far, on disk and in hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..files import atomic_write
from .contenders import CONTENDERS
from .counting import count
from .flops import ALGORITHMS, REASONS, Costs, formula, left_out
from .masks import random_mask
from .sweeps import SPARSITY, Settings

Point = dict[str, Any]
SAME_PLACE = ("device", "body_transformer", "numpy", "torch", "compiler")
"""Two runs that differ in one of these are not continued into each other."""

UNFINISHED = "unfinished.json"


@dataclass
class Record:
    """Settings, environment, and the points measured so far."""

    settings: Settings
    environment: Mapping[str, str]
    points: list[Point] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return {point["key"] for point in self.points} == {point.key for point in self.settings.points()}

    def sweep(self, name: str) -> list[Point]:
        return [point for point in self.points if point["sweep"] == name]

    def to_dict(self) -> dict[str, Any]:
        costs = Costs(exponential=self.settings.exp_flops)
        return {
            "bench": "paper",
            "environment": dict(self.environment),
            "settings": self.settings.to_dict(),
            "contenders": {name: one.label for name, one in CONTENDERS.items()},
            "headline": headline(self.sweep("length")),
            "break_even_sparsity": break_even(self.sweep("sparsity")),
            "flop_counts": flop_counts(self.settings.head_dim, costs),
            "points": self.points,
        }

    def save(self, folder: Path) -> Path:
        """The whole of it, once all is measured; before, what there is goes to `UNFINISHED`."""
        if not self.is_complete:
            points = {"settings": self.settings.to_dict(), "environment": self.environment, "points": self.points}
            return write_json(folder / UNFINISHED, points)
        path = write_json(folder / "results.json", self.to_dict())
        (folder / UNFINISHED).unlink(missing_ok=True)
        return path

    def take_over(self, folder: Path, overwrite: bool = False) -> int:
        """Continue what an earlier run with the same settings on the same machine left unfinished; how many points.

        One that differs is refused: its points took minutes. With `overwrite` it is measured afresh over them.
        """
        found = _read_unfinished(folder / UNFINISHED)
        differences = self._differences(found)
        if not differences:
            self.points = found["points"]
        elif found["points"] and not overwrite:
            raise ValueError(
                f"{str(folder / UNFINISHED)!r} has {len(found['points'])} points of a stopped run that differs "
                f"({'; '.join(differences)}); {found['environment'].get('command')!r} goes on with it, "
                "--overwrite discards it, another --out leaves it alone"
            )
        return len(self.points)

    def _differences(self, found: Mapping[str, Any]) -> list[str]:
        """`draws 10000, here 50`, for all that the results depend on."""
        there = {name: found["environment"].get(name) for name in SAME_PLACE} | found["settings"]
        here = {name: self.environment.get(name) for name in SAME_PLACE} | self.settings.to_dict()
        names = [name for name in here if there.get(name) != here[name]]
        return [f"{name} {there.get(name)}, here {here[name]}" for name in names]


def _read_unfinished(path: Path) -> dict[str, Any]:
    """What a stopped run left; nothing if nothing is there, or nothing of ours."""
    empty: dict[str, Any] = {"settings": {}, "environment": {}, "points": []}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return empty
    is_ours = isinstance(found, dict) and all(type(found.get(key)) is type(value) for key, value in empty.items())
    return found if is_ours else empty


def write_json(path: Path, content: Mapping[str, Any]) -> Path:
    return atomic_write(path, json.dumps(content, indent=1) + "\n")


def headline(lengths: Sequence[Point]) -> list[Point]:
    """At the longest length, for each dtype: who of ours is fastest, and how much faster than vanilla NumPy."""
    longest = max((point["nodes"] for point in lengths), default=0)
    rows = []
    for point in (point for point in lengths if point["nodes"] == longest):
        best = max((name for name in point["speedup"] if CONTENDERS[name].is_ours), key=point["speedup"].__getitem__)
        row = {key: point[key] for key in ("nodes", "sparsity", "dtype", "draws")}
        mean_ratio = point["mean_us"]["vanilla"] / point["mean_us"][best]
        rows.append(row | {"best": best, "speedup": point["speedup"][best], "speedup_of_means": mean_ratio})
    return rows


def break_even(points: Sequence[Point]) -> dict[str, dict[str, float | None]]:
    """Size -> contender -> the sparsity from which on it is faster than vanilla; None where it never is."""
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
    """Where the speed-up passes 1 for the last time, between two measured sparsities by a straight line."""
    slower = [index for index, speedup in enumerate(speedups) if speedup < 1]
    if not slower:
        return sparsities[0]
    last = slower[-1]
    if last == len(speedups) - 1:
        return None
    return float(np.interp(1, speedups[last : last + 2], sparsities[last : last + 2]))


def flop_counts(head_dim: int, costs: Costs, num_nodes: int = 16) -> list[dict[str, Any]]:
    """The formulas beside an evaluation that counts each operation, at a size where that is quick."""
    rng = np.random.default_rng(0)
    mask = random_mask(num_nodes, SPARSITY, rng)
    q, k, v = rng.standard_normal((3, num_nodes, head_dim)).tolist()
    rows = []
    for name in ALGORITHMS:
        counted, executed = (count(name, q, k, v, mask.tolist(), extra)[1].flops(costs) for extra in (False, True))
        density = float(mask.mean())
        reasons = {REASONS[why]: extra for why, extra in left_out(name, num_nodes, density).items()}
        row = {"algorithm": name, "nodes": num_nodes, "ones": int(mask.sum()), "head_dim": head_dim}
        row |= {"formula": formula(name, num_nodes, density, head_dim, costs), "counted": counted}
        rows.append(row | {"executed": executed, "executed_over_formula": executed / counted - 1, "reasons": reasons})
    return rows
