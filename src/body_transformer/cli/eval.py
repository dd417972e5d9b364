"""`bot eval RUN`: a trained policy is tried out; `eval_rl.py` has what learned by reinforcement."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console
from rich.progress import Progress as Bars
from rich.table import Table

from ..pretrained import PREFIX
from ..run import Run
from .output import console, print_json

if TYPE_CHECKING:
    from ..imitation.task import Task
    from ..model.policy import Policy
    from ..training.evaluation import Summary

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
Simulator = Literal["warp", "mujoco"]


@dataclass
class Eval:
    """Rolls a run's newest policy out, and says how it did: means with 95 % bootstrap intervals over episodes."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run's folder; pretrained:NAME is a policy that comes with the package."""
    episodes: int = 100
    """Rollouts for each split."""
    seed: int = 0
    """Of the starts."""
    split: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SPLIT …")] = ()
    """Only these sets of starts; all that the task has if none is named."""
    simulator: Simulator | None = None
    """Of what learned by reinforcement: mjlab's MuJoCo Warp, the default, or plain MuJoCo on the CPU."""
    video: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """One more rollout as a film: .gif, .webp, .png (animated) or .mp4."""
    json: Flag = False
    """Print one JSON object instead of a table."""
    cpu: Flag = False
    """Stay on the CPU even where there is a GPU."""


def main(args: list[str]) -> None:
    options = tyro.cli(Eval, prog="bot eval", args=args)
    if options.episodes < 1:
        raise ValueError(f"--episodes must be 1 or more; got {options.episodes}")
    if options.video is not None:
        from ..video import check_format

        check_format(options.video)
    if str(options.run).startswith(PREFIX) or "rl" in Run.open(options.run).description():
        from .eval_rl import main_rl

        main_rl(options)
        return
    if options.simulator is not None:
        raise ValueError("--simulator is for what learned by reinforcement; this run learned by imitation")
    policy, task = load(options)
    splits = options.split or task.splits
    for split in splits:
        if split not in task.splits:
            raise ValueError(f"unknown split {split!r}; have: {', '.join(task.splits)}")
    with closing(task):
        found = roll_out(policy, task, options, splits)
        if options.video is not None:
            film(policy, task, options.video, options.seed, splits[0])
    if options.json:
        from ..training.evaluation import to_json

        print_json(to_json(found, options.episodes, options.seed))
    else:
        show(found)


def load(options: Eval) -> tuple[Policy, Task]:
    import torch

    from ..checkpoint import policy_folder
    from ..imitation.config import ImitationConfig
    from ..imitation.tasks import make_task
    from ..model.policy import Policy

    description = Run.open(options.run).description()
    if "imitation" not in description:
        raise ValueError(f"{str(options.run)!r} is not a run of imitation")
    config = ImitationConfig.from_dict(description["imitation"])
    policy = Policy.load(policy_folder(options.run))
    device = "cuda" if torch.cuda.is_available() and not options.cpu else "cpu"
    return policy.to(device).eval(), make_task(config.task, policy.layout, config.task_options)


def roll_out(policy: Policy, task: Task, options: Eval, splits: tuple[str, ...]) -> Summary:
    from ..imitation.evaluate import evaluate

    with Bars(console=Console(stderr=True), disable=options.json) as bars:
        tasks = {split: bars.add_task(split, total=options.episodes) for split in splits}
        return evaluate(
            policy,
            task,
            options.episodes,
            options.seed,
            splits,
            lambda split, done: bars.update(tasks[split], completed=done),
        )


def film(policy: Policy, task: Task, file: Path, seed: int, split: str) -> None:
    from ..imitation.evaluate import acting
    from ..video import write_video

    write_video(file, task.film(acting(policy), seed, split), task.frames_hz)


def show(found: Summary) -> None:
    table = Table("split", "metric", "mean", "95 % interval", "episodes", box=None, pad_edge=False)
    for split, metrics in found.items():
        for name, value in metrics.items():
            interval = f"{value.low:.3f} to {value.high:.3f}"
            table.add_row(split, name.replace("_", " "), f"{value.mean:.3f}", interval, str(value.num_episodes))
    console().print(table)
