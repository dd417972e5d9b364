"""`bot collect mocapact`: roll a mocap-expert out and write files in MoCapAct's layout."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ..rl.registry import need_mjlab
from .output import bars, console, print_json
from .run_options import Flag


@dataclass
class CollectMocap:
    """Roll a mocap-expert out in dm_control's physics and write files in MoCapAct's layout, one per motion clip."""

    experiment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="EXPERIMENT")]
    """mocapact, or a YAML file with its layout."""
    policy: Annotated[str, tyro.conf.arg(metavar="POLICY")]
    """The expert: a run of `bot train mocap-expert`, one of its checkpoints, or pretrained:NAME."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder of the files and of the table clips.csv; complete files are kept, so a stopped command can continue."""
    clips: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Motion clips in dm_control's HDF5 format; by default clips and lists are those of the expert's run."""
    train_clips: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Text file with the names of the training clips."""
    validation_clips: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Text file with the names of the validation clips."""
    split: Literal["train", "validation"] = "train"
    """The clips to record; a folder never holds clips of both splits."""
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="CLIP …")] = ()
    """Only these clips of the split."""
    start_rollouts: Annotated[int, tyro.conf.arg(metavar="N")] = 10
    """Rollouts from each snippet's start."""
    random_rollouts: Annotated[int, tyro.conf.arg(metavar="N")] = 10
    """Rollouts from a random frame of each snippet."""
    noise: Annotated[float, tyro.conf.arg(metavar="S")] = 0.1
    """Standard deviation of the executed controls around the expert's, in units of the control range [-1, 1]."""
    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Seed of start frames and noise."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Number of processes; by default one per core."""
    json: Flag = False
    """Print one JSON object, with one entry per clip, instead of a summary."""


def main(args: list[str]) -> None:
    options = tyro.cli(CollectMocap, prog="bot collect mocapact", args=args)
    need_mjlab()
    from ..experiment import load_experiment
    from ..imitation.tasks.mocap.clip_table import describe
    from ..imitation.tasks.mocap.generate import RolloutSettings
    from ..imitation.tasks.mocap.task import MAX_PROCESSES
    from ..imitation.vector_env import allowed_processes
    from ..rl.mocap.collect import TABLE, collect
    from ..rl.mocap.trained import CLIPS, Expert, used_entries

    settings = RolloutSettings(
        start_rollouts=options.start_rollouts,
        random_rollouts=options.random_rollouts,
        noise_std=options.noise,
        seed=options.seed,
    )
    used_entries(load_experiment(options.experiment).layout())
    expert = Expert.load(options.policy, {name: getattr(options, name) for name in CLIPS})
    num_workers = allowed_processes(options.workers, MAX_PROCESSES)
    with bars(hidden=options.json) as shown:
        bar = shown.add_task("clips", total=None)

        def show(done: int, total: int) -> None:
            shown.update(bar, completed=done, total=total)

        rows = collect(expert, options.out, settings, options.split, options.only, num_workers, show)
    if options.json:
        print_json({"folder": str(options.out), "clips": [asdict(row) for row in rows]})
        return
    console().print(f"{describe(rows)}\nwrote {options.out}; its {TABLE} has one row per clip")
