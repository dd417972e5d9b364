"""What every `bot train` is asked, and what a run's folder says of it."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..model.config import PolicyConfig
from ..schema import plain

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


@dataclass(kw_only=True)
class RunOptions:
    """Common to all ways of training."""

    experiment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="EXPERIMENT")]
    """The experiment; `bot list` names them. mjlab:NAME is one of mjlab's own tasks."""
    policy: PolicyConfig
    """The architecture."""
    variant: Annotated[str | None, tyro.conf.arg(metavar="VARIANT")] = None
    """The architecture by name, with the sizes that the experiment has for it."""
    seed: int = 0
    """Of the weights, the order of data or the environments, and the evaluation."""
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

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:  # NumPy's bound, which mjlab would come upon at the first evaluation
            raise ValueError(f"a seed is 0 or more and less than 2**32; got {self.seed}")

    @property
    def folder(self) -> Path:
        name = self.experiment.replace(":", "-")
        return self.out or Path("runs") / name / self.policy.variant / f"seed{self.seed}"

    def check_variant(self, expected: str) -> None:
        """Its name has sizes of its own, so it is not one number of the policy among others."""
        if self.policy.variant != expected:
            raise ValueError(f"name the variant with --variant {self.policy.variant}: it has sizes of its own")

    def describe(self, title: str) -> dict[str, Any]:
        """What the run's folder says of it, but for how it learns."""
        return {
            "name": self.experiment,
            "title": title,
            "variant": self.policy.variant,
            "label": self.label or self.policy.variant,
            "seed": self.seed,
            "command": command_line(),
            "cpu": self.cpu,
            "wandb": self.wandb,
            "machine": machine(self.cpu),
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "policy": plain(self.policy),
        }


@dataclass(kw_only=True)
class ResumeOptions:
    """Common to all ways of going on with a run that was stopped."""

    resume: Annotated[Path, tyro.conf.arg(metavar="RUN")]
    """The run's folder."""
    cpu: Flag = False
    """Stay on the CPU even where there is a GPU."""
    wandb: Annotated[str | None, tyro.conf.arg(metavar="PROJECT")] = None
    """Log to this project of Weights & Biases, too."""
    quiet: Flag = False
    """No progress bar."""


def command_line() -> str:
    """What this process was asked."""
    return shlex.join(["bot", *sys.argv[1:]])


def device_of(cpu: bool) -> str:
    """That reinforcement learning runs on."""
    import torch

    return "cuda:0" if torch.cuda.is_available() and not cpu else "cpu"


def no_gpu(flag: str) -> str:
    """What it means to have none, and what helps; `flag` asks for it."""
    import torch

    fix = "nvidia-smi says whether its driver works" if torch.version.cuda else "pip install --force-reinstall torch"
    return (
        f"no GPU is found, so this runs on the CPU, hundreds of times as slow ({flag} asks for that); "
        f"if this machine has an NVIDIA GPU: {fix}"
    )


def machine(cpu: bool) -> str:
    """Where it runs."""
    import torch

    from ..bench.results import device_name

    on_gpu = torch.cuda.is_available() and not cpu
    return device_name("cuda" if on_gpu else "cpu") + ("" if on_gpu else f", {os.cpu_count()} cores")


def is_first_process() -> bool:
    """Of those that `torchrun` started; the others leave the run's folder alone."""
    return os.environ.get("RANK", "0") == "0"


def value_of(flag: str, args: list[str]) -> str | None:
    """Before all flags are known: which there are depends on this one."""
    for place, arg in enumerate(args):
        if arg == flag and place + 1 < len(args):
            return args[place + 1]
        if arg.startswith(f"{flag}="):
            return arg.split("=", 1)[1]
    return None
