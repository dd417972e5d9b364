"""RlConfig: how a policy is learned by reinforcement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, get_args

from ..errors import unknown

Schedule = Literal["adaptive", "fixed"]
DivergenceFrom = Literal["rollout", "epoch"]
Precision = Literal["auto", "fp32", "tf32", "bf16"]
StdType = Literal["log", "scalar"]


@dataclass(frozen=True)
class RlConfig:
    """PPO. The numbers are by default those of the paper's humanoid experiments, which ran on rl_games."""

    task: str
    """The environment: a name from the table of tasks, or mjlab:NAME for one of mjlab's."""
    motion: str | None = None
    """What mjlab's tracking tasks follow: a file as mjlab's csv_to_npz writes it."""
    layout_overrides: Mapping[str, str] = field(default_factory=dict)
    """Term of the environment -> where it goes, instead of what would be found: a body's name, root, unused, joints,
    bodies …; see `infer_layout.infer_layout`."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the task: name -> value, as YAML. humanoid-board: start_noise_curriculum, privileged_critic. a1-walk:
    command, noise, latency, stiffness, push_every_s, push_speed, turning."""
    num_envs: int = 2048
    """Robots that are simulated side by side, over all processes."""
    random_initial_step: bool = False
    """Training begins somewhere in the robots' episodes, so that they do not all come to their ends at once."""
    num_steps: int = 32
    """Steps of each robot from one update to the next."""
    num_iterations: int = 10_000
    """Updates of the policy; each is many steps of the optimizer."""
    num_epochs: int = 5
    """How often an update goes through what was collected."""
    num_minibatches: int = 8
    """Parts that it is gone through in."""
    blocks: bool = True
    """A minibatch is all steps of some robots; otherwise steps are drawn."""
    gamma: float = 0.99
    """Discount of a step."""
    lam: float = 0.95
    """Of generalised advantage estimation."""
    clip: float = 0.2
    """Of the probability ratio, and of the value's change."""
    learning_rate: float = 5e-4
    """Of Adam, at the start."""
    schedule: Schedule = "adaptive"
    """The learning rate after that: by the divergence, or constant."""
    desired_kl: float = 0.008
    """Divergence from the policy that acted; beyond twice that the learning rate falls, under half of it it rises."""
    divergence_from: DivergenceFrom = "rollout"
    """Measured from the policy that acted, as rsl_rl does, or from what it was an epoch ago, as rl_games does."""
    min_learning_rate: float = 1e-6
    max_learning_rate: float = 1e-2
    value_coef: float = 2.0
    """Weight of the value's squared error; rl_games has 4 and halves the error."""
    entropy_coef: float = 0.0
    bound_coef: float = 1e-4
    """Weight of mean actions beyond ±1.1, where the motors have long been at their limit."""
    max_grad_norm: float = 1.0
    """Of actor and critic together."""
    reward_scale: float = 0.01
    """Applied to rewards for training; what is reported is not scaled."""
    normalize_obs: bool = True
    """By running statistics, which move once an iteration."""
    normalize_values: bool = True
    """The critic learns returns of mean 0 and variance 1."""
    std_type: StdType = "log"
    """What the optimizer moves: the logarithm of the actions' standard deviation, or itself, as mjlab has it."""
    final_std: float | None = None
    """What the standard deviation may be at most after `std_iterations`, from the policy's first one on, each iteration
    by the same factor less; None = whatever is learned."""
    std_iterations: int = 300
    eval_every: int | None = 50
    """Iterations from one evaluation to the next, with the mean action; None = at the end only."""
    eval_episodes: int = 100
    """Rollouts an evaluation."""
    checkpoint_every_s: float = 120.0
    """Seconds from one checkpoint to the next; there is one at the end, too."""
    keep_checkpoints: int = 2
    """So many of the newest stay on disk."""
    precision: Precision = "auto"
    """Of the encoder's products; auto is bf16 on a GPU and fp32 on a CPU."""

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(unknown(name, getattr(self, name), choices))
        for name, kinds in _NUMBERS.items():
            value = getattr(self, name)
            if value is None and "None" in kinds:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{name} must be a number; got {value!r}")
            if name in _POSITIVE and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be above 0; got {value!r}")
            if "int" in kinds and not isinstance(value, int):
                raise ValueError(f"{name} must be a whole number; got {value!r}")
        for name in ("gamma", "lam"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1; got {getattr(self, name)!r}")
        for name in ("value_coef", "entropy_coef", "bound_coef"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ValueError(f"{name} must be 0 or above; got {getattr(self, name)!r}")
        if self.min_learning_rate > self.max_learning_rate:
            bounds = f"{self.min_learning_rate!r} and {self.max_learning_rate!r}"
            raise ValueError(f"min_learning_rate must not be above max_learning_rate; got {bounds}")
        if self.num_envs * self.num_steps < 2:
            raise ValueError("num_envs x num_steps must be 2 or more: advantages are divided by their deviation; got 1")
        whole = self.num_envs if self.blocks else self.num_envs * self.num_steps
        if whole % self.num_minibatches:
            what = "num_envs" if self.blocks else "num_envs x num_steps"
            raise ValueError(f"num_minibatches must divide {what}; got {self.num_minibatches} and {whole}")


_CHOICES = {
    "schedule": get_args(Schedule),
    "divergence_from": get_args(DivergenceFrom),
    "precision": get_args(Precision),
    "std_type": get_args(StdType),
}
_NUMBERS = {
    item.name: kinds for item in fields(RlConfig) if {"int", "float"} & (kinds := set(str(item.type).split(" | ")))
}
"""Setting -> the types that it may have."""
_POSITIVE = (
    "num_envs",
    "num_steps",
    "num_iterations",
    "num_epochs",
    "num_minibatches",
    "clip",
    "learning_rate",
    "desired_kl",
    "min_learning_rate",
    "max_learning_rate",
    "max_grad_norm",
    "reward_scale",
    "final_std",
    "std_iterations",
    "eval_every",
    "eval_episodes",
    "checkpoint_every_s",
    "keep_checkpoints",
)
