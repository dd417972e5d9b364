"""Options that several commands share, and the description of a run."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ..experiment import SUFFIXES
from ..model.config import PolicyConfig
from ..schema import plain

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


@dataclass(kw_only=True)
class ProcessOptions:
    """Options of every training, new or resumed."""

    cpu: Flag = False
    """Use the CPU even if there is a GPU."""
    wandb: Annotated[str | None, tyro.conf.arg(metavar="PROJECT")] = None
    """Also log to this project of Weights & Biases."""
    quiet: Flag = False
    """No progress bar."""


@dataclass(kw_only=True)
class RunOptions(ProcessOptions):
    """Options of every new training."""

    experiment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="EXPERIMENT")]
    """Name of the experiment (see `bot list`), a YAML file, or mjlab:NAME for one of mjlab's own tasks."""
    policy: PolicyConfig
    """The architecture."""
    variant: Annotated[str | None, tyro.conf.arg(metavar="VARIANT")] = None
    """Architecture by name, with the experiment's sizes for it."""
    seed: int = 0
    """Seed of the weights, of the order of data or the environments, and of the evaluation."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder of the run; by default runs/EXPERIMENT/VARIANT/seedK."""
    label: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    """Name in reports; by default the variant."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:  # NumPy's limit, which mjlab would hit at the first evaluation
            raise ValueError(f"--seed must be 0 or more and less than 2**32; got {self.seed}")

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        name = Path(self.experiment).stem if self.experiment.endswith(SUFFIXES) else self.experiment.replace(":", "-")
        return self.out or Path("runs") / name / self.policy.variant / f"seed{self.seed}"

    def check_variant(self, expected: str) -> None:
        """Raise an error if --policy.variant differs: --variant also sets the experiment's sizes for a variant."""
        if self.policy.variant != expected:
            raise ValueError(f"set the variant with --variant {self.policy.variant}: each variant has its own sizes")

    def describe(self, title: str) -> dict[str, Any]:
        """Return the description of the run, without the settings of its training."""
        return {
            "name": experiment_id(self.experiment),
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
class ResumeOptions(ProcessOptions):
    """Options for resuming any stopped run."""

    resume: Annotated[Path, tyro.conf.arg(metavar="RUN")]
    """The run's folder."""


@dataclass
class EvalOptions:
    """Evaluate a policy: means with 95 % bootstrap intervals over episodes."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="POLICY")]
    """A run folder (its newest checkpoint), a checkpoint, a saved or exported policy, or pretrained:NAME."""
    experiment: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Experiment whose task to use; needed for a policy that was saved outside a run."""
    episodes: int = 100
    """Rollouts per split."""
    seed: int = 0
    """Seed of the initial states."""
    split: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SPLIT …")] = ()
    """Splits of an imitation task to evaluate on; by default all."""
    simulator: Literal["warp", "mujoco"] | None = None
    """For policies of reinforcement learning: MuJoCo Warp through mjlab (default), or plain MuJoCo on the CPU."""
    video: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write one more rollout as a film: .gif, .webp, .png (animated) or .mp4."""
    json: Flag = False
    """Print one JSON object instead of a table."""
    cpu: Flag = False
    """Use the CPU even if there is a GPU."""


def experiment_id(experiment: str) -> str:
    """Return the name under which a run records its experiment: a file's absolute path, or a shipped name."""
    return str(Path(experiment).absolute()) if experiment.endswith(SUFFIXES) else experiment


def command_line() -> str:
    """Return the command that this process runs."""
    return shlex.join(["bot", *sys.argv[1:]])


def device_of(cpu: bool) -> str:
    """Return the device of reinforcement learning."""
    import torch

    return "cuda:0" if torch.cuda.is_available() and not cpu else "cpu"


def no_gpu(flag: str) -> str:
    """Return the warning about a missing GPU; `flag` selects the CPU without it."""
    import torch

    fix = "nvidia-smi says whether its driver works" if torch.version.cuda else "pip install --force-reinstall torch"
    return (
        f"no GPU was found, so this runs on the CPU, hundreds of times slower ({flag} selects the CPU); "
        f"if this machine has an NVIDIA GPU: {fix}"
    )


def machine(cpu: bool) -> str:
    """Return the name of the GPU, or of the CPU with its number of cores."""
    import torch

    from ..bench.results import device_name

    on_gpu = torch.cuda.is_available() and not cpu
    return device_name("cuda" if on_gpu else "cpu") + ("" if on_gpu else f", {os.cpu_count()} cores")


def is_first_process() -> bool:
    """Return whether this is the first of the processes of `torchrun`; only that one writes to the run's folder."""
    return os.environ.get("RANK", "0") == "0"


def value_of(flag: str, args: list[str]) -> str | None:
    """Return the value of a flag, before parsing: it decides which other flags exist."""
    for place, arg in enumerate(args):
        if arg == flag and place + 1 < len(args):
            return args[place + 1]
        if arg.startswith(f"{flag}="):
            return arg.split("=", 1)[1]
    return None
