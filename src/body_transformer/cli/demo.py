"""`bot demo`: the main job, start to finish, on a plain CPU."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.table import Table

from ..experiment import load_experiment
from .output import console, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..training.jobs import Planned

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


@dataclass
class Demo:
    """Clones a motion-tracking expert with bot-hard, a transformer and an MLP of equal size, tries them on motions they
    know, on motions they have never seen and at tilts they have never seen, and writes a report."""

    seeds: int = 1
    """So many times, with other weights and another order of the data: gives the spread."""
    steps: int | None = None
    """Updates for each policy; by default the experiment's."""
    episodes: int | None = None
    """Rollouts for each policy and set of starts; by default the experiment's."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/demo")
    """Where everything goes; what is finished there is not done again."""
    jobs: int | None = None
    """Runs at once; by default as many as there are cores, four at most."""
    json: Flag = False
    """Print one JSON object instead of the table."""


def main(args: list[str]) -> None:
    options = tyro.cli(Demo, prog="bot demo", args=args)
    for name in ("seeds", "steps", "episodes", "jobs"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} must be 1 or more; got {value}")
    begun = time.perf_counter()
    runs = run(options)
    report = write_page(options, runs)
    if options.json:
        print_json({"report": str(report), "runs": {planned.label: evaluation(planned) for planned in runs}})
        return
    show(runs)
    console().print(f"\nwrote {report} (open it in a browser) in {time.perf_counter() - begun:.0f} s")


def run(options: Demo) -> Sequence[Planned]:
    from ..imitation.demo import equal_steps, equal_time, prepare_data
    from ..training.jobs import run_all

    experiment = load_experiment("demo")
    config = experiment.imitation
    assert config is not None
    config = replace(
        config, num_steps=options.steps or config.num_steps, eval_episodes=options.episodes or config.eval_episodes
    )
    words = Console(stderr=True)
    with words.status("making demonstrations"):
        data = prepare_data(experiment, config, options.out)
    seeds = range(options.seeds)
    jobs = options.jobs or min(4, os.cpu_count() or 1)
    runs = equal_steps(config, data, options.out, seeds)
    run_all(runs, jobs, words)
    more = equal_time(config, data, options.out, seeds)
    run_all(more, jobs, words)
    return [*runs, *more]


def write_page(options: Demo, runs: Sequence[Planned]) -> Path:
    from ..imitation.demo import WHY
    from ..report.page import write_report

    for planned in runs:
        if not (planned.folder / "film.webp").is_file():
            film(planned.folder)
    file = options.out / "report.html"
    write_report(file, [planned.folder for planned in runs], title="Body Transformer: the demo", paragraphs=[WHY])
    return file


def film(folder: Path) -> None:
    from ..imitation.evaluate import acting
    from ..imitation.tracking.task import TrackingTask
    from ..model.policy import Policy
    from ..video import write_video

    policy = Policy.load(folder)
    task = TrackingTask(policy.layout)
    write_video(folder / "film.webp", task.film(acting(policy), 0, "validation"), task.frames_hz)


def evaluation(planned: Planned) -> dict[str, dict[str, dict[str, float]]]:
    found: dict[str, dict[str, dict[str, float]]] = json.loads((planned.folder / "evaluation.json").read_text())[
        "splits"
    ]
    return found


def show(runs: Sequence[Planned]) -> None:
    """Normalised length and return: with intervals over episodes or, of several seeds, the lowest to the highest."""
    arms: dict[str, list[dict[str, dict[str, dict[str, float]]]]] = {}
    for planned in runs:
        arms.setdefault(planned.folder.parent.name, []).append(evaluation(planned))
    splits = list(next(iter(arms.values()))[0])
    for metric in ("normalized_length", "normalized_return"):
        table = Table(metric.replace("_", " "), *splits, box=None, pad_edge=False)
        for name, seeds in arms.items():
            table.add_row(name, *(cell([values[split][metric] for values in seeds]) for split in splits))
        console().print(table)
        console().print()


def cell(seeds: Sequence[dict[str, float]]) -> str:
    """A mean and a range."""
    means = [value["mean"] for value in seeds]
    low, high = (seeds[0]["low"], seeds[0]["high"]) if len(seeds) == 1 else (min(means), max(means))
    return f"{sum(means) / len(means):.3f} ({low:.3f} to {high:.3f})"
