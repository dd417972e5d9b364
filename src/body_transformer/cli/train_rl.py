"""`bot train` for what is learned by reinforcement: our tasks, and mjlab's as `mjlab:NAME`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..config import Experiment
from ..model.config import PolicyConfig
from ..rl.config import RlConfig
from ..run import Run
from .output import console

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
MJLAB = "mjlab:"


@dataclass
class TrainRl:
    """Trains a policy by PPO; every number of the experiment can be set here."""

    experiment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="EXPERIMENT")]
    """The experiment; `bot list` names them. mjlab:NAME is one of mjlab's own tasks."""
    policy: PolicyConfig
    """The architecture."""
    rl: RlConfig
    """The training."""
    variant: Annotated[str | None, tyro.conf.arg(metavar="VARIANT")] = None
    """The architecture by name, with the sizes that the experiment has for it."""
    seed: int = 0
    """Of the weights, the environments and the evaluation."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """The run's folder; by default runs/EXPERIMENT/VARIANT/seedK."""
    label: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    """What reports call it; by default the variant."""
    cpu: Flag = False
    """Stay on the CPU even where there is a GPU."""
    wandb: Annotated[str | None, tyro.conf.arg(metavar="PROJECT")] = None
    """Log to this project of Weights & Biases, too."""
    quiet: Flag = False
    """No progress bar."""


def main(args: list[str], experiment: Experiment) -> None:
    """Of one of our experiments."""
    if experiment.rl is None:
        raise ValueError(f"experiment {experiment.name!r} is not learned by reinforcement")
    begin(args, experiment.name, experiment.title, experiment.policy_config(_variant(args)), experiment.rl)


def main_mjlab(args: list[str]) -> None:
    """Of one of mjlab's tasks, with the settings that mjlab has for it."""
    from ..rl.registry import mjlab_config

    policy = PolicyConfig(variant=_variant(args) or "bot-mix", head="gaussian", init="normal")
    begin(args, args[0], f"{args[0].removeprefix(MJLAB)}, of mjlab", policy, mjlab_config(args[0]))


def begin(args: list[str], name: str, title: str, policy: PolicyConfig, rl: RlConfig) -> None:
    from ..rl.ranks import Ranks
    from ..rl.registry import need_mjlab

    options = tyro.cli(TrainRl, prog="bot train", args=args, default=TrainRl(name, policy, rl))
    variant = options.policy.variant
    if variant != policy.variant:
        raise ValueError(f"name the variant with --variant {variant}: it has sizes of its own")
    folder = options.out or Path("runs") / name.replace(":", "-") / variant / f"seed{options.seed}"
    need_mjlab()
    is_first = Ranks.from_environment().is_first
    if is_first:
        Run(folder).check_free()
    description = {
        "name": name,
        "title": title,
        "variant": variant,
        "label": options.label or variant,
        "seed": options.seed,
        "command": shlex.join(["bot", *sys.argv[1:]]),
        "cpu": options.cpu,
        "wandb": options.wandb,
        "policy": options.policy.to_dict(),
        "rl": options.rl.to_dict(),
        "num_steps": options.rl.num_iterations,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    learn(Run.create(folder, description) if is_first else Run(folder), description, options.quiet, resumed=False)


def learn(run: Run, found: Mapping[str, Any], quiet: bool, resumed: bool) -> None:
    """What the run's description says; from its newest checkpoint, if it goes on."""
    import torch

    from ..rl.ranks import Ranks
    from ..rl.train import Job, StoppedEarly, train
    from ..training.progress import Progress

    is_first = Ranks.from_environment().is_first
    quiet = quiet or not is_first
    device = "cuda:0" if torch.cuda.is_available() and not found["cpu"] else "cpu"
    job = Job(
        run,
        PolicyConfig.from_dict(found["policy"]),
        RlConfig.from_dict(found["rl"]),
        int(found["seed"]),
        device,
        resumed,
        found["wandb"],
        (lambda text: None) if quiet else (lambda text: print(text, file=sys.stderr)),
    )
    try:
        train(job, Progress(f"{found['name']} {found['variant']}", quiet=quiet))
    except StoppedEarly as stop:
        print(f"bot train: {stop} {run.folder}", file=sys.stderr)
        raise SystemExit(130) from None
    if is_first:
        console().print(f"wrote {run.folder}")


def _variant(args: list[str]) -> str | None:
    from .train import value_of

    return value_of("--variant", args)
