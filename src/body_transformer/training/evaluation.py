"""What came of trying a policy out: as a line of a run's log, and as its evaluation.json."""

from __future__ import annotations

import json
from dataclasses import asdict

from ..files import atomic_write
from ..run import EVALUATION, Run
from .summary import Estimate

Summary = dict[str, dict[str, Estimate]]
"""Split -> metric -> its mean."""


def to_metrics(found: Summary) -> dict[str, dict[str, float]]:
    """eval/<split>/<metric> -> its mean and interval, as metrics.jsonl has it."""
    return {
        f"eval/{split}/{name}": asdict(value) for split, metrics in found.items() for name, value in metrics.items()
    }


def to_json(found: Summary, num_episodes: int, seed: int) -> dict[str, object]:
    splits = {split: {name: asdict(value) for name, value in metrics.items()} for split, metrics in found.items()}
    return {"splits": splits, "num_episodes": num_episodes, "seed": seed}


def write_evaluation(run: Run, found: Summary, num_episodes: int, seed: int) -> None:
    """evaluation.json, in the run's folder: the run is finished, so all else must be on disk by now."""
    atomic_write(run.folder / EVALUATION, json.dumps(to_json(found, num_episodes, seed), indent=1) + "\n")
