"""RlConfig: the settings of a training by reinforcement learning, with rsl_rl's names where rsl_rl has the setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..schema import build, check_fields

Schedule = Literal["adaptive", "fixed"]
KlReference = Literal["rollout", "epoch"]
Precision = Literal["auto", "fp32", "tf32", "bf16"]
StdType = Literal["log", "scalar"]


@dataclass(frozen=True)
class RlConfig:
    """Settings of PPO, of its environments and of its evaluations.

    The defaults are those of the paper's humanoid experiments, which ran on rl_games.
    """

    task: str
    """The environment: one of our tasks, or mjlab:NAME for one of mjlab's."""
    motion: str | None = None
    """Motion file of a tracking task of mjlab, written by mjlab's csv_to_npz."""
    layout_overrides: Mapping[str, str] = field(default_factory=dict)
    """Term of the environment -> the place of its entries, instead of the inferred one. A place is a body's name, root,
    unused, joints, bodies …; see `infer_layout.infer_layout`."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the task, name -> value as YAML. humanoid-board: start_noise_curriculum, privileged_critic. a1-walk
    and a1-command: see rl/a1/options.py. mocap-expert: see docs/mocapact.md."""
    num_envs: int = 2048
    """Environments, one robot each, over all processes."""
    random_initial_step: bool = False
    """Start training at a random step of every episode, so that not all episodes end together."""
    num_steps_per_env: int = 32
    """Steps of every environment per iteration."""
    max_iterations: int = 10_000
    """Iterations: a rollout and an update each."""
    num_learning_epochs: int = 5
    """Passes over the rollout per update."""
    num_mini_batches: int = 8
    """Minibatches per epoch."""
    minibatch_by_env: bool = True
    """A minibatch holds all steps of some environments; otherwise steps are drawn at random."""
    gamma: float = 0.99
    """Discount factor."""
    lam: float = 0.95
    """Lambda of generalised advantage estimation."""
    clip_param: float = 0.2
    """Clipping range of the probability ratio and of the value's change."""
    learning_rate: float = 5e-4
    """Learning rate of Adam at the start of training."""
    schedule: Schedule = "adaptive"
    """Learning rate during training: adapted to the KL divergence, or fixed."""
    desired_kl: float = 0.008
    """Target KL divergence: above twice this value the learning rate falls, below half of it the rate rises."""
    kl_reference: KlReference = "rollout"
    """Policy from which the divergence is measured: that of the rollout, as in rsl_rl, or that of the previous epoch,
    as in rl_games."""
    min_learning_rate: float = 1e-6
    """Lower bound of the adaptive learning rate."""
    max_learning_rate: float = 1e-2
    """Upper bound of the adaptive learning rate."""
    value_loss_coef: float = 2.0
    """Weight of the value loss, a mean squared error. rl_games uses 4 and halves the error."""
    use_clipped_value_loss: bool = True
    """Clip the change of a value like the probability ratio."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus."""
    action_bound: float = 1.1
    """Mean actions beyond ± this bound are penalised; motors reach their limit at 1."""
    action_bound_coef: float = 1e-4
    """Weight of that penalty."""
    max_grad_norm: float = 1.0
    """Maximum norm of the gradients."""
    joint_grad_norm: bool = True
    """Clip the gradients of actor and critic together, as rl_games does; otherwise each by itself, as rsl_rl does."""
    normalize_advantage_per_mini_batch: bool = False
    """Standardise advantages per minibatch instead of per rollout."""
    reward_scale: float = 0.01
    """Factor of rewards in training; logged returns are not scaled."""
    obs_normalization: bool = True
    """Normalise observations by running statistics, which are updated once per iteration."""
    normalize_values: bool = True
    """Scale the critic's targets to mean 0 and variance 1."""
    std_type: StdType = "log"
    """Learned parameter of the actions' standard deviation: its logarithm, or the deviation itself as in mjlab."""
    final_std: float | None = None
    """Upper bound of the standard deviation after `std_iterations`; it falls geometrically from the initial deviation.
    None = no bound."""
    std_iterations: int = 300
    """Iterations until the bound reaches `final_std`."""
    eval_every: int | None = 50
    """Iterations between evaluations, which use the mean action; None = at the end only."""
    eval_episodes: int = 100
    """Episodes per evaluation."""
    checkpoint_every_s: float = 120.0
    """Seconds between checkpoints; there is always one at the end."""
    keep_checkpoints: int = 2
    """Number of newest checkpoints to keep."""
    precision: Precision = "auto"
    """Precision of the encoder's matrix products; auto is bf16 on a GPU and fp32 on a CPU."""

    def __post_init__(self) -> None:
        coefficients = ("value_loss_coef", "entropy_coef", "action_bound_coef")
        check_fields(self, non_negative=coefficients, fractions=("gamma", "lam"))
        if self.min_learning_rate > self.max_learning_rate:
            bounds = f"{self.min_learning_rate!r} and {self.max_learning_rate!r}"
            raise ValueError(f"min_learning_rate must not be above max_learning_rate; got {bounds}")
        num_steps = self.num_envs * self.num_steps_per_env
        if num_steps < 2:
            raise ValueError(
                "num_envs x num_steps_per_env must be 2 or more: advantages are divided by their standard deviation; "
                "got 1"
            )
        total = self.num_envs if self.minibatch_by_env else num_steps
        if total % self.num_mini_batches:
            what = "num_envs" if self.minibatch_by_env else "num_envs x num_steps_per_env"
            raise ValueError(f"num_mini_batches must divide {what}; got {self.num_mini_batches} and {total}")

    @classmethod
    def from_run(cls, data: Mapping[str, Any]) -> RlConfig:
        """Build the settings from a run's description, which may have been written with the former names."""
        return build(cls, with_current_names(data) if isinstance(data, Mapping) else data, "rl")


def with_current_names(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded settings of a run under the current names."""
    current = {FORMER_NAMES.get(name, name): value for name, value in data.items()}
    if isinstance(options := current.get("options"), Mapping):
        current["options"] = {FORMER_OPTIONS.get(name, name): value for name, value in options.items()}
    return current


FORMER_NAMES = {
    "by_hand": "layout_overrides",
    "scattered": "random_initial_step",
    "num_steps": "num_steps_per_env",
    "num_iterations": "max_iterations",
    "num_epochs": "num_learning_epochs",
    "num_minibatches": "num_mini_batches",
    "blocks": "minibatch_by_env",
    "clip": "clip_param",
    "divergence_from": "kl_reference",
    "value_coef": "value_loss_coef",
    "bound_coef": "action_bound_coef",
    "normalize_obs": "obs_normalization",
}
"""Former name of a setting -> its current name, which is rsl_rl's. Older runs are recorded under the former names."""
FORMER_OPTIONS = {"gentle": "start_noise_curriculum", "told": "privileged_critic"}
"""Former name of an option of a task -> its current name."""
