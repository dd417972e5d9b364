"""Values that are not finite end the training; the environments that caused them are saved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tensordict import TensorDict
from torch import Tensor

from ..checkpoint import newest_path
from ..errors import listing
from ..files import atomic_write
from ..model.tensor_files import write_tensors
from .envs.interface import RlEnv
from .rollout import RolloutBuffer

FILE = "broken_states_{rank}.safetensors"


@dataclass(frozen=True)
class FiniteCheck:
    """Checks of a training run. Each raises a ValueError with the cause, the file and the last good checkpoint."""

    run: Path
    """The run's folder."""
    rank: int
    """Rank of this process."""
    env: RlEnv
    rollout: RolloutBuffer

    def check_rollout(self, obs: TensorDict, iteration: int) -> None:
        """Check observations, rewards and actions of the rollout, and the observations after it.

        The rollout does not hold the result of its last step, and mjlab replaces a reward that is not finite by zero.
        """
        rollout = self.rollout
        columns = [*rollout.observations.values(), rollout.rewards, *(obs[name][None] for name in rollout.observations)]
        is_broken = ~_finite_envs(columns)
        if self.env.non_finite is not None:  # FastEnv has already reset these
            is_broken |= self.env.non_finite
        ids = is_broken.nonzero().flatten()  # waits for the device
        if not len(ids):
            return
        cause = "the policy gave actions" if is_policy_cause(rollout, ids) else "physics gave values"
        raise ValueError(
            f"{cause} that are not finite in {len(ids)} of {self.env.num_envs} environments at iteration {iteration}; "
            f"{self._save(ids)}; {self.last_good()}"
        )

    def check_losses(self, losses: Mapping[str, float], iteration: int) -> None:
        """Check the statistics of an update. Save the environments with such values; without any, save all of them."""
        if all(math.isfinite(value) for value in losses.values()):
            return
        is_finite = _finite_envs([self.rollout.values, self.rollout.returns, self.rollout.log_probs])
        ids = (is_finite.all() | ~is_finite).nonzero().flatten()
        raise ValueError(
            f"the loss is not finite at iteration {iteration}: {dict(losses)}; {len(ids)} of {self.env.num_envs} "
            f"environments may be the cause; {self._save(ids)}; {self.last_good()}"
        )

    def check_weights(self, tensors: Mapping[str, Tensor], iteration: int) -> None:
        """Check the tensors of a checkpoint, because the last optimizer step follows the last loss."""
        broken = [name for name, value in tensors.items() if not bool(torch.isfinite(value).all())]
        if broken:
            raise ValueError(
                f"weights are not finite after iteration {iteration}: {listing(broken)}; {self.last_good()}"
            )

    def last_good(self) -> str:
        """Name the newest checkpoint."""
        found = newest_path(self.run)
        return f"the last good checkpoint is {str(found)!r}" if found else "there is no checkpoint yet"

    def _save(self, ids: Tensor) -> str:
        """Save observations and actions [T, ids, …] and simulator states [ids, …]; return a sentence with the file."""
        columns = {f"obs.{name}": column for name, column in self.rollout.observations.items()}
        tensors = {name: column[:, ids] for name, column in (columns | {"actions": self.rollout.actions}).items()}
        tensors |= {name: state[ids] for name, state in self.env.final_state().items()} | {"env_ids": ids}
        contiguous = {name: value.contiguous() for name, value in tensors.items()}
        file = self.run / FILE.format(rank=self.rank)
        atomic_write(file, lambda path: write_tensors(path, contiguous))
        return f"their states, observations and actions are in {str(file)!r}"


def is_policy_cause(rollout: RolloutBuffer, ids: Tensor) -> bool:
    """Return whether an action is not finite although all observations of its step are: the weights broke."""
    acted = torch.isfinite(rollout.actions[:, ids]).all(-1)  # [T, ids]
    groups = [torch.isfinite(column[:, ids]).flatten(2).all(-1) for column in rollout.observations.values()]
    return bool((torch.stack(groups).all(0) & ~acted).any())


def _finite_envs(columns: Sequence[Tensor]) -> Tensor:
    """Return which environments are finite in all columns: [T, B, …] each -> [B]."""
    return torch.stack([torch.isfinite(column).flatten(2).all(-1).all(0) for column in columns]).all(0)
