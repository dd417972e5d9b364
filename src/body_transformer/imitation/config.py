"""Settings of imitation learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import tyro

from ..schema import check_fields

Loss = Literal["mse", "likelihood"]
Schedule = Literal["constant", "cosine"]
Precision = Literal["auto", "fp32", "tf32", "bf16"]
Options = Annotated[Mapping[str, Any], tyro.conf.arg(constructor=dict[str, str])]
"""Options by name; values from a command line are text, those of a file may be of any type."""
OPTIONS_OF = {"reader": "options", "task": "task_options"}
"""Field that names a reader or a task -> field with its options."""
NO_TASK = "none"
"""Value of `task` for an experiment without one, on a command line and in a file."""


@dataclass(frozen=True)
class ImitationConfig:
    """Settings of behaviour cloning; the defaults are the paper's."""

    reader: str
    """Reader of the demonstrations, such as npz or minari."""
    task: str | None = None
    """Task in which the policy is evaluated: adroit, mocap, tracking, gym or MODULE:CLASS; None = no evaluation."""
    data: str | None = None
    """Demonstrations: a file, a folder, or a name that the reader resolves; None if the reader generates them."""
    options: Options = field(default_factory=dict)
    """Further options of the reader."""
    task_options: Options = field(default_factory=dict)
    """Options of the task."""
    num_demos: int | None = None
    """Number of demonstrations to train on, drawn by the seed; None = all."""
    loss: Loss = "mse"
    """Squared error of the mean action, or negative log-likelihood of a Gaussian head."""
    learning_rate: float = 1e-4
    """Learning rate of AdamW."""
    weight_decay: float = 0.01
    """Weight decay of AdamW."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises from zero."""
    schedule: Schedule = "constant"
    """Learning rate after the warm-up."""
    batch_size: int = 256
    """Steps of demonstrations per update, over all processes."""
    num_epochs: int | None = None
    """Passes over the demonstrations; give this or `num_steps`."""
    num_steps: int | None = None
    """Number of updates; give this or `num_epochs`."""
    eval_every: int | None = None
    """Epochs between evaluations; None = at the end only."""
    eval_every_steps: int | None = None
    """Updates between evaluations, instead of `eval_every`: for epochs that are long."""
    eval_last: int | None = None
    """Evaluate only during this many last epochs; None = during all."""
    eval_episodes: int = 100
    """Rollouts per evaluation and split."""
    log_every: int = 50
    """Updates per logged line."""
    checkpoint_every_s: float = 120.0
    """Seconds between checkpoints; another one is written at the end."""
    keep_checkpoints: int = 2
    """Number of checkpoints to keep."""
    precision: Precision = "auto"
    """Precision of matrix products; auto is bf16 on a GPU and fp32 on a CPU."""

    def __post_init__(self) -> None:
        if self.task == NO_TASK:
            object.__setattr__(self, "task", None)
        check_fields(self, non_negative=("weight_decay", "warmup_steps"))
        if (self.num_epochs is None) == (self.num_steps is None):
            raise ValueError(
                f"give either num_epochs or num_steps; got num_epochs={self.num_epochs}, num_steps={self.num_steps}"
            )


def named_task(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section with a task by name: `task: {gym: ID, …}` is short for `task: gym` and its options."""
    task = section.get("task")
    if not isinstance(task, Mapping):
        return dict(section)
    if "gym" not in task or section.get("task_options"):
        raise ValueError(
            "imitation.task must be a name, or a mapping that holds `gym: ENVIRONMENT` and all other options of the "
            f"task; got task {dict(task)} with task_options {section.get('task_options', {})}"
        )
    options = {"id" if name == "gym" else name: value for name, value in task.items()}
    return {**section, "task": "gym", "task_options": options}


def without_other_options(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` without the options of a reader or task that `changes` replaces."""
    replaced = {options for name, options in OPTIONS_OF.items() if name in changes and changes[name] != base.get(name)}
    return {key: value for key, value in base.items() if key not in replaced}
