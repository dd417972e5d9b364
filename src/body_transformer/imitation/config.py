"""ImitationConfig: how a policy is cloned from demonstrations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from ..errors import unknown

Loss = Literal["mse", "likelihood"]
Schedule = Literal["constant", "cosine"]
Precision = Literal["auto", "fp32", "tf32", "bf16"]


@dataclass(frozen=True)
class ImitationConfig:
    """Behaviour cloning. The numbers are by default those of the paper."""

    task: str
    """Where the policy is tried out: a name from the table of tasks."""
    reader: str
    """Who reads the demonstrations: a name from the table of readers."""
    data: str | None = None
    """Where they are: a file, a folder, or what the reader calls them; None where the task makes its own."""
    options: Mapping[str, str] = field(default_factory=dict)
    """What the reader wants to know beside that."""
    task_options: Mapping[str, str] = field(default_factory=dict)
    """What the task wants to know."""
    num_demos: int | None = None
    """Train on so many demonstrations, drawn by the seed; None = all."""
    loss: Loss = "mse"
    """Squared error of the mean action, or the negative likelihood of a policy that has a Gaussian head."""
    learning_rate: float = 1e-4
    """Of AdamW."""
    weight_decay: float = 0.01
    """Of AdamW."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises from zero."""
    schedule: Schedule = "constant"
    """The learning rate after that."""
    batch_size: int = 256
    """Steps of demonstrations an update, over all processes."""
    num_epochs: int | None = None
    """How often the demonstrations are gone through; this or `num_steps`."""
    num_steps: int | None = None
    """How many updates there are; this or `num_epochs`."""
    eval_every: int | None = None
    """Epochs from one evaluation to the next; None = at the end only."""
    eval_last: int | None = None
    """Evaluate in so many of the last epochs only; None = in all."""
    eval_episodes: int = 100
    """Rollouts an evaluation, for each split."""
    log_every: int = 50
    """Updates from one logged line to the next."""
    checkpoint_every_s: float = 120.0
    """Seconds from one checkpoint to the next; there is one at the end, too."""
    keep_checkpoints: int = 2
    """So many of the newest stay on disk."""
    precision: Precision = "auto"
    """Of matrix products; auto is bf16 on a GPU and fp32 on a CPU."""

    def __post_init__(self) -> None:
        for name, kind in (("loss", Loss), ("schedule", Schedule), ("precision", Precision)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(unknown(name, getattr(self, name), get_args(kind)))
        if (self.num_epochs is None) == (self.num_steps is None):
            raise ValueError(
                f"give either num_epochs or num_steps; got num_epochs={self.num_epochs}, num_steps={self.num_steps}"
            )
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be above 0; got {value!r}")
        for name in ("weight_decay", "warmup_steps"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be 0 or above; got {value!r}")


_POSITIVE = (
    "num_demos",
    "learning_rate",
    "batch_size",
    "num_epochs",
    "num_steps",
    "eval_every",
    "eval_last",
    "eval_episodes",
    "log_every",
    "checkpoint_every_s",
    "keep_checkpoints",
)
